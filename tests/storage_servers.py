"""Real HDFS and S3 servers as fixtures (`tests/conftest.py` has them), started when first used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from tests.servers.needed import needed
from tests.servers.s3 import LocalS3

T = TypeVar("T")

TWO_CORES = "--master local[2,4] --conf spark.sql.shuffle.partitions=2"
"""Options of Spark: a session on a machine with two cores."""


def serving(make: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
    """Yield a running server."""
    with contextlib.ExitStack() as stack:
        with needed(getattr(make, "__name__", str(make))):
            server = stack.enter_context(make())
        yield server


def spark_configuration(directory: Path, s3: LocalS3) -> dict[str, str]:
    """Return the environment for a program's Spark session to reach `s3`."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{key} {value}\n" for key, value in s3.spark_settings().items()]
    settings = directory / "spark-defaults.conf"
    settings.write_text("".join(lines))
    # SPARK_CONF_DIR would change the JVM's class path: `class_archive` needs it unchanged.
    return {"PYSPARK_SUBMIT_ARGS": f"{TWO_CORES} --properties-file {settings} pyspark-shell"}

"""Servers with the interfaces of HDFS, S3 and Google's store, as fixtures (`tests/conftest.py` has
them), started when first used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from tests.servers.gcs import GcsServer
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


def spark_configuration(directory: Path, server: LocalS3 | GcsServer) -> dict[str, str]:
    """Return the environment for a program's Spark session to reach the server."""
    directory.mkdir(parents=True, exist_ok=True)
    given = server.spark_settings()
    if isinstance(server, GcsServer):
        given["spark.jars"] = str(server.connector)
    lines = [f"{key} {value}\n" for key, value in given.items()]
    settings = directory / "spark-defaults.conf"
    settings.write_text("".join(lines))
    # SPARK_CONF_DIR would change the JVM's class path: `class_archive` needs it unchanged.
    return {"PYSPARK_SUBMIT_ARGS": f"{TWO_CORES} --properties-file {settings} pyspark-shell"}

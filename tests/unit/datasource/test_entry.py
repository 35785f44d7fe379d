"""The module by which Spark finds ``format("seamark")``: it is imported in every session that has a
Python data source, so nothing that may be missing is imported with it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.util import handle_worker_exception

from pyspark_seamark import DefaultSource
from seamark.model.errors import ConfigurationError
from tests.unit.datasource.played import IDS


def test_the_name_alone_imports_nothing_of_ours() -> None:
    program = "import sys, pyspark_seamark; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    modules = done.stdout.split()
    assert "pyspark_seamark" in modules
    assert not [name for name in modules if name.startswith(("seamark", "pyarrow"))]


def test_spark_shows_a_mistake_in_one_line(tmp_path: Path) -> None:
    """A worker of Spark's shows an error by this function of Spark's, and then ends."""
    shown = io.BytesIO()
    source = DefaultSource({"sink": "sqlight", "checkpointlocation": str(tmp_path)})
    with pytest.raises(ConfigurationError) as error:
        source.streamWriter(IDS, False)
    handle_worker_exception(error.value, shown)
    text = shown.getvalue()[8:].decode()
    assert text.startswith('seamark.model.errors.ConfigurationError: format("seamark"): the option')
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda source: source.schema(),
        lambda source: source.reader(IDS),
        lambda source: source.streamReader(IDS),
        lambda source: source.writer(IDS, overwrite=True),
    ],
    ids=["read", "read with a schema", "readStream", "write"],
)
def test_what_is_no_stream_s_writer_is_refused_in_one_line(call: Callable[[Any], Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"df\.writeStream\.format") as error:
        call(DefaultSource({}))
    handle_worker_exception(error.value, shown := io.BytesIO())
    assert shown.getvalue()[8:].decode().count("\n") == 1

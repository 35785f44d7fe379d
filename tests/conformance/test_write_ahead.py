"""Write-ahead sinks under the conformance suite: one into a plain table; one over HTTP to an
endpoint with a table of keys; and the one of docs/sinks/write-ahead.md, as it stands there, to the
same. The crash between send and record must double rows in the first alone."""

from __future__ import annotations

import importlib
import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from seamark import EpochToken, WriteAheadSink
from seamark.verify.conformance import (
    ExpiryConformance,
    LineUnderTest,
    OutageConformance,
    SinkUnderTest,
    WriteAheadConformance,
    steps,
)
from tests.servers.http_endpoint import http_endpoint

PAGE = Path(__file__).parents[2] / "docs" / "sinks" / "write-ahead.md"
(BLOCK,) = (
    block
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    if "class PagerSink" in block
)
# Importable here and, by sys.path, in the suite's child processes.
directory = tempfile.TemporaryDirectory(prefix="sm-")
Path(directory.name, "pager_sink.py").write_text(BLOCK)
sys.path.append(directory.name)


@dataclass(frozen=True)
class TableSink(WriteAheadSink):
    """Into a SQLite table without tokens."""

    database: str

    def describe(self) -> str:
        return "a plain table"

    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        with sqlite3.connect(self.database, timeout=60) as connection:
            for batch in batches:
                rows = [[number] for number in batch["number"].to_pylist()]
                connection.executemany("INSERT INTO rows VALUES (?)", rows)


def numbers(values: Any) -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array(values, pa.int64())})


def lines(values: Any) -> pa.RecordBatch:
    return pa.record_batch(
        {"value": pa.array([json.dumps({"number": n}) for n in values], pa.string())}
    )


def drop(committable: Any) -> None:
    for path in steps.checkpoints.rglob(f"{Path(committable.handle).name}*"):
        path.unlink()


FAILPOINTS: dict[str, Any] = {
    "writer_failpoint": "write-ahead-written",
    "commit_failpoints": ("sent-recorded",),
    "drop": drop,
}


@pytest.fixture(params=["table", "http", "page"])
def under(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkUnderTest]:
    if request.param == "page":
        with http_endpoint(tmp_path) as endpoint:
            sink = importlib.import_module("pager_sink").PagerSink(f"{endpoint.url}/rows?keep")
            yield SinkUnderTest(sink, numbers, endpoint.rows, **FAILPOINTS)
        return
    if request.param == "http":
        with http_endpoint(tmp_path) as endpoint:
            sink = WriteAheadSink.http(f"{endpoint.url}/rows?keep", idempotent=True)
            yield SinkUnderTest(sink, lines, endpoint.rows, **FAILPOINTS)
        return
    database = str(tmp_path / "target.db")
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE rows (number INTEGER)")

    def visible() -> list[int]:
        with sqlite3.connect(database) as connection:
            found = connection.execute("SELECT number FROM rows ORDER BY rowid").fetchall()
        return [number for (number,) in found]

    yield SinkUnderTest(TableSink(database), numbers, visible, **FAILPOINTS)


class TestOutages(OutageConformance):
    """The endpoint is away, silent, or answers by halves."""

    _checkpoints = WriteAheadConformance._checkpoints

    @pytest.fixture
    def under(self, tmp_path: Path) -> Iterator[SinkUnderTest]:
        with http_endpoint(tmp_path) as endpoint:
            port = urlsplit(endpoint.url).port
            assert port is not None

            def through(port: int) -> Any:
                return WriteAheadSink.http(
                    f"http://127.0.0.1:{port}/rows?keep", idempotent=True, timeout="1s"
                )

            line = LineUnderTest("127.0.0.1", port, through)
            yield SinkUnderTest(through(port), lines, endpoint.rows, line=line, **FAILPOINTS)


class TestWriteAhead(WriteAheadConformance, ExpiryConformance):
    pass

"""SQLiteSink under the conformance suite: a real database file, read through the sink's driver."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from seamark.sinks.sqlite import SQLiteSink, database
from seamark.verify.conformance import (
    DeadLetterConformance,
    ExpiryConformance,
    ForgettingConformance,
    OutageConformance,
    RefusalConformance,
    SinkConformance,
    SinkUnderTest,
)
from tests.servers.disk import SmallDisk


@pytest.fixture
def under(tmp_path: Path) -> SinkUnderTest:
    return under_test(tmp_path)


def under_test(directory: Path) -> SinkUnderTest:
    sink = SQLiteSink(directory / "target.db", table="orders")

    def visible() -> list[int]:
        with database.connect(sink.path) as cursor:
            cursor.execute("SELECT count(*) FROM sqlite_master WHERE name = 'orders'")
            if cursor.fetchone()[0] == 0:
                return []
            cursor.execute("SELECT id FROM orders")
            return [row[0] for row in cursor.fetchall()]

    return SinkUnderTest(
        sink=sink,
        batch=lambda numbers: pa.record_batch(
            {"id": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]},
            schema=pa.schema([("id", pa.int64()), ("text", pa.string())]),
        ),
        visible=visible,
        writer_failpoint="stage-written",
        commit_failpoints=("ledger-committed",),
        drop=lambda file: (sink.staging_root / file.handle).unlink(),
        refused=lambda: pa.record_batch({"other": [1]}),
    )


class TestSQLite(SinkConformance, ExpiryConformance, ForgettingConformance, RefusalConformance):
    pass


class TestOutages(OutageConformance):
    """The disk is full or not mounted; another program holds the database."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, disk: SmallDisk) -> SinkUnderTest:
        made = under_test(disk.path)
        outages = {**disk.outages, "locked": partial(locked, made.sink.path)}  # type: ignore[attr-defined]
        return dataclasses.replace(made, outages=outages)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    with database.connect(path) as cursor:
        cursor.execute("BEGIN EXCLUSIVE")
        yield
        cursor.execute("ROLLBACK")


class TestChangedSQLite(SinkConformance, ExpiryConformance, ForgettingConformance):
    """With keys and op."""

    @pytest.fixture
    def under(self, under: SinkUnderTest) -> SinkUnderTest:
        sink = dataclasses.replace(under.sink, keys=["id"], op="op")  # type: ignore[type-var]

        def batch(numbers: Sequence[int]) -> pa.RecordBatch:
            ops = pa.array(["insert"] * len(numbers), pa.string())
            return under.batch(numbers).append_column("op", ops)

        return dataclasses.replace(under, sink=sink, batch=batch)


class TestConstrainedSQLite(DeadLetterConformance):
    @pytest.fixture
    def under(self, under: SinkUnderTest) -> SinkUnderTest:
        columns = "id INTEGER NOT NULL, text TEXT CHECK (length(text) < 10)"
        with database.connect(under.sink.path) as cursor:
            cursor.execute(f"CREATE TABLE orders ({columns}) STRICT")
        bad = pa.record_batch(
            {"id": pa.array([1, None, 2], pa.int64()), "text": ["much too long", "null", "x" * 99]},
            schema=pa.schema([("id", pa.int64()), ("text", pa.string())]),
        )
        return dataclasses.replace(under, refused=lambda: bad)

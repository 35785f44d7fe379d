"""`IdempotentSink` subclassed as a user would, on SQLite, under the suite for idempotent sinks; and
the suite itself: without its guard the same sink must fail.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seamark as sm
from seamark.model.errors import CheckpointError, PreCommitError
from seamark.verify.conformance import IdempotentConformance, KeyedSinkUnderTest
from seamark.verify.conformance.steps import driver

TABLES = """
CREATE TABLE IF NOT EXISTS latest (number INTEGER PRIMARY KEY, value INTEGER);
CREATE TABLE IF NOT EXISTS guard (part INTEGER PRIMARY KEY, at TEXT, done INTEGER);
"""


def order(generation: int, epoch: int, attempt: int = 0) -> str:
    return f"{generation:09}.{epoch:09}.{attempt:09}"


@dataclass(frozen=True)
class LatestSink(sm.IdempotentSink):
    path: str
    guarded: bool = True

    def describe(self) -> str:
        return f"latest values in {self.path}"

    def connect(self) -> Any:
        return contextlib.closing(sqlite3.connect(self.path, isolation_level=None))

    def preflight(self, context: sm.SinkContext) -> None:
        with self.connect() as connection:
            connection.executescript(TABLES)
            newest = order(context.generation, 0)
            connection.execute("INSERT OR REPLACE INTO guard VALUES (-1, ?, 0)", [newest])

    def create_writer(self, context: sm.WriterContext) -> LatestWriter:
        return LatestWriter(self, context)


@dataclass
class LatestWriter(sm.CommittingWriter[Any]):
    sink: LatestSink
    at: sm.WriterContext
    rows: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self.apply([tuple(row.values()) for row in batch.to_pylist()])
        self.rows += batch.num_rows

    def prepare_commit(self) -> Sequence[Any]:
        if self.rows:
            self.apply([], done=1)
        return ()

    def abort(self) -> None:
        with contextlib.suppress(sqlite3.Error), self.sink.connect() as connection:
            connection.execute("UPDATE guard SET done = 0 WHERE part = ? AND at = ?",
                               [self.at.partition_id, self.mine])  # fmt: skip

    @property
    def mine(self) -> str:
        return order(self.at.generation, self.at.epoch, self.at.attempt)

    def apply(self, rows: list[tuple[Any, ...]], done: int = 0) -> None:
        with self.sink.connect() as connection:
            connection.execute("BEGIN IMMEDIATE")
            ((newest,),) = connection.execute("SELECT max(at) FROM guard WHERE part <> ?",
                                              [self.at.partition_id])  # fmt: skip
            own = connection.execute("SELECT at, done FROM guard WHERE part = ?",
                                     [self.at.partition_id]).fetchone() or ("", 0)  # fmt: skip
            epoch = order(self.at.generation, self.at.epoch)
            late = self.mine[:19] < newest[:19] or self.mine < own[0]
            if self.sink.guarded and (late or (own[1] and own[0] > epoch)):
                raise PreCommitError("a late one")
            connection.execute("INSERT OR REPLACE INTO guard VALUES (?, ?, ?)",
                               [self.at.partition_id, self.mine, done])  # fmt: skip
            connection.executemany("INSERT OR REPLACE INTO latest VALUES (?, ?)", rows)
            connection.execute("COMMIT")


def under_test(path: Path, *, guarded: bool = True) -> KeyedSinkUnderTest:
    def shown() -> dict[int, int]:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return dict(connection.execute("SELECT number, value FROM latest"))

    def batch(numbers: Sequence[int], value: int) -> pa.RecordBatch:
        numbers = list(numbers)
        return pa.record_batch({"number": pa.array(numbers, pa.int64()),
                                "value": pa.array([value] * len(numbers), pa.int64())})  # fmt: skip

    return KeyedSinkUnderTest(LatestSink(str(path), guarded), batch, shown)


class TestLatestSink(IdempotentConformance):
    @pytest.fixture
    def keyed(self, tmp_path: Path) -> KeyedSinkUnderTest:
        return under_test(tmp_path / "latest.db")


@pytest.mark.parametrize(
    "test",
    [
        "test_an_old_drivers_writer_that_wakes_up_changes_nothing",
        "test_a_task_that_is_late_by_an_epoch_changes_nothing",
        "test_of_two_attempts_of_a_task_one_counts",
    ],
)
def test_without_a_guard_the_suite_finds_it(test: str, tmp_path: Path) -> None:
    keyed = under_test(tmp_path / "latest.db", guarded=False)
    with pytest.raises(AssertionError):
        getattr(IdempotentConformance(), test)(keyed)


def test_committables_of_another_sink_under_its_uid_are_refused() -> None:
    sink = LatestSink("x.db")
    assert sink.way is sm.SinkWay.IDEMPOTENT
    for use in (sink.load, sink.create_committer(driver()).commit):
        with pytest.raises(CheckpointError, match="another uid"):
            use([b"x"])  # type: ignore[arg-type]

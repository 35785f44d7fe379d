"""Rows that wait go through `sm.process` once, whatever the program has become meanwhile.

How: the tasks run in this process, over real files of rows; a class stands for Spark's plan.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from seamark.checkpoint.channel_state import Stage
from seamark.contracts.sink import CommittingWriter, WriterContext
from seamark.files import HadoopSettings
from seamark.run import pre_commit
from seamark.run.in_flight import Overflow
from seamark.run.layout import Layout
from seamark.run.pre_commit import LaneTasks, Order
from seamark.run.process import Process
from seamark.run.task_attempt import EpochTasks
from seamark.streaming.trial_sinks import NoopSink, _NoopWriter

SCHEMA = pa.schema([("id", pa.int64())])


class Session:
    """Plans and runs tasks as Spark does, one after another; stands for its RDDs, too."""

    def __init__(self) -> None:
        self.sparkContext = SimpleNamespace(setLocalProperty=self._set)

    def _set(self, name: str, value: str) -> None:
        self._order = value

    def range(self, start: int, end: int, step: int, partitions: int) -> Session:
        self._tasks = end
        return self

    def mapInArrow(self, run: Callable[..., Any], schema: str) -> Any:  # noqa: N802 - Spark's name
        planned = SimpleNamespace(collect=lambda: self._collect(run))
        return SimpleNamespace(_jdf=SimpleNamespace(javaRDD=lambda: planned))

    def _collect(self, run: Callable[..., Any]) -> Any:
        found = []
        for number in range(self._tasks):
            self._number = number
            for batch in run(iter(())):
                reports = batch.column(0).to_pylist()
                found += [SimpleNamespace(get=lambda _, r=r: r) for r in reports]
        return SimpleNamespace(size=lambda: len(found), get=found.__getitem__)

    def get(self) -> Any:
        return SimpleNamespace(
            getLocalProperty=lambda name: self._order,
            partitionId=lambda: self._number,
            taskAttemptId=lambda: 0,
            attemptNumber=lambda: 0,
        )


@pytest.mark.parametrize(
    ("processes", "found"), [(("out",), [-1, -2]), ((), [1, 2]), (None, [-1, -2])]
)
def test_rows_are_processed_as_the_program_that_read_them_would_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    processes: tuple[str, ...] | None,
    found: list[int],
) -> None:
    written: list[int] = []

    class Writer(_NoopWriter):
        def write(self, batch: pa.RecordBatch) -> None:
            written.extend(batch.column(0).to_pylist())

    class Sink(NoopSink):
        def create_writer(self, context: WriterContext) -> CommittingWriter[Any]:
            return Writer()

    session, uri = Session(), (tmp_path / "channel-state").as_uri()
    monkeypatch.setattr(pre_commit, "TaskContext", session)
    negative = Process("p", lambda row: {"id": -row["id"]}, "row", SCHEMA, (("id", "id", False),))
    job = EpochTasks(
        Layout(("out",), ("id",)), {"out": Sink()}, {}, "job", 1, HadoopSettings(), {"out": ""},
        uri, {"out": negative},
    )  # fmt: skip
    rows = Overflow(WriterContext("job", "", 1, 0, 0, 0, -1, spool_uri=uri))
    rows.write(pa.record_batch({"c0": [1, 2]}))
    stage = Stage(("out",), ("id",), (rows.finish(),), processes)
    (task,) = LaneTasks(job).run(session, stage, Order(1, 0))  # type: ignore[arg-type]
    assert written == found
    assert task.sinks["out"].rows == 2

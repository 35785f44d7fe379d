"""What a task of an epoch does: write its Arrow batches into one transaction per sink, and flush.

Runs in Spark's Python workers, once per attempt. What it returns, the driver gets from
the winning attempt alone; what other attempts leave open is lingering.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from tidemark.checkpoint.task_reports import SinkReport, TaskReport
from tidemark.contracts.sink import CommittingWriter, TwoPhaseCommitSink, WriterContext
from tidemark.file_systems import HadoopSettings
from tidemark.model.errors import PreCommitError
from tidemark.runtime.branches import Layout

RESULT_SCHEMA = (
    "epoch bigint, partition int, attempt int, started_at double, ended_at double, sink string, "
    "rows bigint, committables array<binary>, data_bytes bigint, write_s double, flush_s double"
)
_RESULT = pa.schema(
    [
        ("epoch", pa.int64()),
        ("partition", pa.int32()),
        ("attempt", pa.int32()),
        ("started_at", pa.float64()),
        ("ended_at", pa.float64()),
        ("sink", pa.string()),
        ("rows", pa.int64()),
        ("committables", pa.list_(pa.binary())),
        ("data_bytes", pa.int64()),
        ("write_s", pa.float64()),
        ("flush_s", pa.float64()),
    ]
)
_EPOCH = "tidemark.epoch"
"""Spark's local property that tells a task its epoch, and the last one that is settled."""

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@functools.cache
def _spare_the_collector() -> None:
    """Take what this worker has imported out of the garbage collector's sight, once.

    Spark's worker daemon collects in full after every task: some 30 ms of CPU for modules that
    never become garbage, in each worker and epoch.
    """
    gc.collect()
    gc.freeze()


def pre_commit(
    layout: Layout,
    sinks: Mapping[str, TwoPhaseCommitSink[Any]],
    *,
    job_id: str,
    generation: int,
    hadoop: HadoopSettings,
    buffer_uris: Mapping[str, str],
) -> BatchFunction:
    """Return the function for `mapInArrow`: batches of the united stream in; out comes one row per
    sink that got rows, or one without a sink (RESULT_SCHEMA). `run_tasks` runs it.

    One function serves all epochs of a run, as a part of the stream's own plan: to plan it anew in
    each epoch took 11 ms of every one.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started_at = time.time()
        task = TaskContext.get()
        assert task is not None
        epoch, settled_epoch, write = map(int, str(task.getLocalProperty(_EPOCH)).split())
        if not write:
            for _ in batches:
                pass
            return
        writers: dict[str, CommittingWriter[Any]] = {}
        parts: dict[str, _Part] = {}
        busy = ""  # whose writer is being called: its errors are failures of the checkpoint
        try:
            for batch in batches:
                for uid, part in layout.split(batch):
                    if part.num_rows == 0:
                        continue
                    busy = uid
                    if uid not in writers:
                        parts[uid] = _Part()
                        writers[uid] = sinks[uid].create_writer(
                            WriterContext(
                                job_id=job_id,
                                sink_uid=uid,
                                generation=generation,
                                epoch=epoch,
                                partition_id=task.partitionId(),
                                attempt=task.taskAttemptId(),
                                settled_epoch=settled_epoch,
                                hadoop=hadoop,
                                buffer_uri=buffer_uris[uid],
                            )
                        )
                    begun_s = time.perf_counter()
                    writers[uid].write(part)
                    parts[uid].write_s += time.perf_counter() - begun_s
                    parts[uid].rows += part.num_rows
                    parts[uid].data_bytes += part.nbytes
                busy = ""
            for busy, writer in writers.items():
                begun_s = time.perf_counter()
                committables = writer.prepare_commit()
                parts[busy].flush_s = time.perf_counter() - begun_s
                parts[busy].committables = [sinks[busy].dump(c) for c in committables]
        except BaseException as error:
            for writer in writers.values():
                with contextlib.suppress(Exception):
                    writer.abort()
            if busy and isinstance(error, Exception):
                reason = f"sink {busy!r}: {type(error).__name__}: {error}"
                raise PreCommitError(reason) from error
            raise
        _spare_the_collector()
        of_task = {
            "epoch": epoch,
            "partition": task.partitionId(),
            "attempt": task.attemptNumber(),
            "started_at": started_at,
            "ended_at": time.time(),
        }
        results = [{**of_task, "sink": uid, **vars(part)} for uid, part in parts.items()]
        yield pa.RecordBatch.from_pylist(results or [of_task], schema=_RESULT)

    return run


@dataclass
class _Part:
    """What one task wrote to one sink: the columns of RESULT_SCHEMA that are the sink's."""

    rows: int = 0
    committables: Sequence[bytes] = ()
    data_bytes: int = 0
    write_s: float = 0.0
    flush_s: float = 0.0


def run_tasks(
    frame: DataFrame, epoch: int, settled_epoch: int, *, write: bool = True
) -> list[TaskReport]:
    """Run an epoch's tasks, and return what those that count reported; none if they are only to
    read their rows, not to `write` them. `frame` is what a stream with `pre_commit` at its end
    gives to `foreachBatch`; called in the thread of that."""
    context = frame.sparkSession.sparkContext
    context.setLocalProperty(_EPOCH, f"{epoch} {settled_epoch} {write:d}")
    results = frame.collect()
    if others := {row["epoch"] for row in results} - {epoch}:
        raise RuntimeError(f"tasks of epoch {epoch} ran as those of {sorted(others)}")
    return _task_reports(results)


def _task_reports(results: Iterable[Row]) -> list[TaskReport]:
    reports: dict[int, TaskReport] = {}
    sinks: dict[int, dict[str, SinkReport]] = {}
    for row in results:
        parts = sinks.setdefault(row["partition"], {})
        if row["sink"] is not None:
            parts[row["sink"]] = SinkReport(
                rows=row["rows"],
                committables=tuple(map(bytes, row["committables"])),
                data_bytes=row["data_bytes"],
                write_s=row["write_s"],
                flush_s=row["flush_s"],
            )
        reports[row["partition"]] = TaskReport(
            row["partition"], row["attempt"], row["started_at"], row["ended_at"], parts
        )
    return list(reports.values())

"""The work of a task in an epoch: write its Arrow batches into one transaction per sink, and flush.

Runs in Spark's Python workers, once per attempt. The driver gets the report of the winning attempt
alone. Transactions left open by other attempts are lingering.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import pickle
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from seamark.checkpoint import spool
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.contracts.dead_letters import RefusedRow, SelectiveSink
from seamark.contracts.sink import CommittingWriter, TwoPhaseCommitSink, WriterContext
from seamark.file_systems import HadoopSettings
from seamark.model.errors import PreCommitError, WriteRefusedError
from seamark.model.redaction import Redactor, secrets_in
from seamark.runtime.branches import Layout
from seamark.runtime.dead_letters import dead_letters as dead_letters_of
from seamark.runtime.dead_letters import for_sink
from seamark.runtime.java_calls import items_of

RESULT_SCHEMA = "report binary"
EPOCH = "seamark.epoch"
"""Spark's local property with a task's epoch, the last settled epoch, and whether to write
(`epoch_property`)."""

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@functools.cache
def _spare_the_collector() -> None:
    """Hide this worker's imports from the garbage collector, once.

    Spark's worker daemon collects in full after every task. In each worker and epoch this took some
    30 ms of CPU, for modules that never become garbage.
    """
    gc.collect()
    gc.freeze()


def pre_commit(
    layout: Layout,
    sinks: Mapping[str, TwoPhaseCommitSink[Any]],
    dead_letters: Mapping[str, str],
    *,
    job_id: str,
    generation: int,
    hadoop: HadoopSettings,
    spool_uris: Mapping[str, str],
) -> BatchFunction:
    """Return the function for `mapInArrow`. It takes batches of the united stream and yields one
    row (RESULT_SCHEMA): the pickled epoch and `TaskReport`. `run_tasks` runs it.

    `dead_letters` maps a sink's uid to the uid of the sink for its refused rows.

    One function, in the stream's own plan, serves all epochs of a run: planning it anew took 11 ms
    in each epoch.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started_at = time.time()
        task = TaskContext.get()
        assert task is not None
        epoch, settled_epoch, write = map(int, str(task.getLocalProperty(EPOCH)).split())
        if not write:
            for _ in batches:
                pass
            return

        def context(uid: str) -> WriterContext:
            return WriterContext(
                job_id=job_id,
                sink_uid=uid,
                generation=generation,
                epoch=epoch,
                partition_id=task.partitionId(),
                attempt=task.taskAttemptId(),
                settled_epoch=settled_epoch,
                hadoop=hadoop,
                spool_uri=spool_uris[uid],
            )

        attempt = _Attempt(sinks, dead_letters, context)
        try:
            for batch in batches:
                for uid, part in layout.split(batch):
                    attempt.write(uid, part)
            attempt.prepare_commit()
        except BaseException as error:
            attempt.abort()
            if attempt.busy and isinstance(error, Exception):
                hide = Redactor(secrets_in(dict(sinks)))
                raise PreCommitError(hide(attempt.failure(error))) from _told(error, hide)
            raise
        report = TaskReport(
            task.partitionId(), task.attemptNumber(), started_at, time.time(), attempt.parts
        )
        result = _result(pickle.dumps((epoch, report)))
        _spare_the_collector()
        yield result

    return run


def _told(error: Exception, hide: Callable[[str], str]) -> Exception | None:
    """Return `error`, with its traceback for Spark's log; None if its text, or the text of one of
    its causes, holds a secret."""
    link: BaseException | None = error
    while link is not None:
        if hide(str(link)) != str(link):
            return None
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return error


def _result(report: bytes) -> pa.RecordBatch:
    # Made of buffers: `pa.array` imports pandas, for half a second of each new worker's CPU.
    offsets = pa.py_buffer(struct.pack("=2i", 0, len(report)))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(report)])
    return pa.RecordBatch.from_arrays([column], ["report"])


class _Attempt:
    """The writers of one task attempt, each made at its sink's first rows. `busy` is the uid of the
    sink whose writer is being called: an error in such a call is a failure of the checkpoint."""

    def __init__(
        self,
        sinks: Mapping[str, TwoPhaseCommitSink[Any]],
        dead_letters: Mapping[str, str],
        context: Callable[[str], WriterContext],
    ) -> None:
        self._sinks = sinks
        self._dead_letters = dead_letters
        self._context = context
        self._writers: dict[str, CommittingWriter[Any]] = {}
        self.parts: dict[str, SinkReport] = {}
        self.busy = ""

    def write(self, uid: str, rows: pa.RecordBatch) -> None:
        """Write to one sink; write refused rows to its dead-letter sink."""
        if rows.num_rows == 0:
            return
        self.busy = uid
        if uid not in self._writers:
            self.parts[uid] = SinkReport()
            self._writers[uid] = self._new_writer(uid)
        writer, part = self._writers[uid], self.parts[uid]
        refused: Sequence[RefusedRow] = ()
        begun_s = time.perf_counter()
        if uid in self._dead_letters:
            refused = writer.write_accepted(rows)  # type: ignore[attr-defined]
        else:
            writer.write(rows)
        part.write_s += time.perf_counter() - begun_s
        part.rows += rows.num_rows - len(refused)
        part.data_bytes += rows.nbytes
        if refused:
            into = self._dead_letters[uid]
            letters = dead_letters_of(uid, self._context(uid).epoch, rows, refused)
            self.write(into, for_sink(self._sinks[into], letters))
        self.busy = ""

    def _new_writer(self, uid: str) -> CommittingWriter[Any]:
        sink = self._sinks[uid]
        context = self._context(uid)
        if uid not in self._dead_letters:
            return spool.keeping(sink, sink.create_writer(context), context)
        assert isinstance(sink, SelectiveSink)  # checked when the job was built
        return spool.keeping(sink, sink.create_selective_writer(context), context)

    def prepare_commit(self) -> None:
        """Flush every sink."""
        for uid, writer in self._writers.items():
            self.busy = uid
            begun_s = time.perf_counter()
            committables = writer.prepare_commit()
            self.parts[uid].flush_s = time.perf_counter() - begun_s
            dumped = (spool.dump(self._sinks[uid], c) for c in committables)
            self.parts[uid].committables = tuple(dumped)
        self.busy = ""

    def abort(self) -> None:
        """Give everything up; raises nothing."""
        for writer in self._writers.values():
            with contextlib.suppress(Exception):
                writer.abort()

    def failure(self, error: Exception) -> str:
        """Return the epoch's failure message: the sink, the reason and, if there is one, a
        remedy."""
        reason = f"sink {self.busy!r}: {type(error).__name__}: {error}"
        if not isinstance(error, WriteRefusedError):
            return reason
        if self.busy in self._dead_letters.values():
            return f"{reason}; what it refuses are dead letters: give it room for every text"
        if self.busy not in self._dead_letters and isinstance(
            self._sinks[self.busy], SelectiveSink
        ):
            return f'{reason}; to set single bad rows aside: job.sink(…, on_bad_row="dead_letter")'
        return reason


def run_tasks(
    frame: DataFrame, epoch: int, settled_epoch: int, *, write: bool = True
) -> list[TaskReport]:
    """Run an epoch's tasks, and return the reports of the winning attempts. Without `write`, tasks
    only read their rows, and there are no reports. `frame` is the argument of `foreachBatch`, for a
    stream with `pre_commit` at its end. Called in the thread of `foreachBatch`."""
    context = frame.sparkSession.sparkContext
    context.setLocalProperty(EPOCH, epoch_property(epoch, settled_epoch, write=write))
    # The frame is a wrapped RDD. To collect the frame itself would plan a second query in each
    # epoch, and serve its rows through a socket: 5 ms.
    rows = items_of(frame._jdf.queryExecution().analyzed().rdd().toJavaRDD().collect())
    return reports_of(epoch, [row.getBinary(0) for row in rows])


def epoch_property(epoch: int, settled_epoch: int, *, write: bool = True) -> str:
    """Return the value of EPOCH for an epoch's tasks."""
    return f"{epoch} {settled_epoch} {write:d}"


def reports_of(epoch: int, rows: Iterable[bytes]) -> list[TaskReport]:
    """Return the reports in the tasks' rows. Raises RuntimeError for a row of another epoch."""
    results = [pickle.loads(row) for row in rows]
    if others := {of_epoch for of_epoch, _ in results} - {epoch}:
        raise RuntimeError(f"tasks of epoch {epoch} ran as those of {sorted(others)}")
    return [report for _, report in results]

"""The work of a task in an epoch: write its Arrow batches into one transaction per sink, and flush.

Runs in Spark's Python workers, once per attempt. The driver gets the report of the winning attempt
alone. Transactions left open by other attempts are lingering.
"""

import functools
import gc
import json
import pickle
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from seamark.checkpoint import spool
from seamark.checkpoint.channel_state import Lane, lanes_of
from seamark.checkpoint.sink_epoch import Tally
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.contracts.dead_letters import RefusedRow, SelectiveSink, without
from seamark.contracts.read_back import UpsertingSink
from seamark.contracts.record_batches import in_parts
from seamark.contracts.sink import CommittingWriter, TwoPhaseCommitSink, WriterContext
from seamark.file_systems import HadoopSettings
from seamark.model import failpoints
from seamark.model.errors import PreCommitError, WriteRefusedError
from seamark.model.ignored import ignored
from seamark.model.redaction import Redactor, secrets_in
from seamark.runtime.branches import Layout
from seamark.runtime.dead_letters import dead_letters as dead_letters_of
from seamark.runtime.dead_letters import for_sink
from seamark.runtime.in_flight import ALIGNED, Deadline, Overflow, Pace, read_lane, rest_of
from seamark.runtime.java_calls import items_of
from seamark.runtime.process import Process

RESULT_SCHEMA = "report binary"
ORDER = "seamark.order"
"""Spark's local property with a task's `Order`."""

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@functools.cache
def _spare_the_collector() -> None:
    """Hide this worker's imports from the garbage collector, once.

    Spark's worker daemon collects in full after every task. In each worker and epoch this took some
    30 ms of CPU, for modules that never become garbage.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class EpochTasks:
    """The constant part of a job's tasks, sent to the workers.

    `dead_letters` maps a sink's uid to the uid of the sink for its refused rows. `processes` make
    sinks' rows of those in the stream.
    """

    layout: Layout
    sinks: Mapping[str, TwoPhaseCommitSink[Any]]
    dead_letters: Mapping[str, str]
    job_id: str
    generation: int
    hadoop: HadoopSettings
    spool_uris: Mapping[str, str]
    channel_state_uri: str
    processes: Mapping[str, Process]


@dataclass(frozen=True)
class Order:
    """The part that differs from epoch to epoch. `settled_epoch` is the last epoch with a recorded
    outcome; the tasks' partitions are counted from `first_partition`; without `write`, tasks only
    read their rows; without `deadline`, they write all of them. `lanes` are for `LaneTasks`."""

    epoch: int
    settled_epoch: int
    write: bool = True
    first_partition: int = 0
    deadline: Deadline | None = None
    lanes: tuple[Lane, ...] = ()

    def to_text(self) -> str:
        """Return it as text, for `from_text`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> "Order":
        """Read `to_text`'s form."""
        fields = json.loads(text)
        deadline, lanes = fields.pop("deadline"), lanes_of(fields.pop("lanes"))
        return Order(**fields, deadline=Deadline(**deadline) if deadline else None, lanes=lanes)


def pre_commit(job: EpochTasks, *, of_lanes: bool = False) -> BatchFunction:
    """Return the function for `mapInArrow`. It takes batches of the united stream and yields one
    row (RESULT_SCHEMA): the pickled epoch and `TaskReport`. `run_tasks` runs it.

    With `of_lanes`, task n takes the rows of its order's lane n instead; `LaneTasks` runs it.

    One function, in the stream's own plan, serves all epochs of a run: planning it anew took 11 ms
    in each epoch.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started_at = time.time()
        task = TaskContext.get()
        assert task is not None
        order = Order.from_text(str(task.getLocalProperty(ORDER)))
        lane: Lane = ()
        if of_lanes or not order.write:
            for _ in batches:
                pass
            if not order.write:
                return
            lane = order.lanes[task.partitionId()]
            batches = read_lane(lane, job.channel_state_uri, job.hadoop)
        partition = order.first_partition + task.partitionId()

        def context(uid: str) -> WriterContext:
            return WriterContext(
                job_id=job.job_id,
                sink_uid=uid,
                generation=job.generation,
                epoch=order.epoch,
                partition_id=partition,
                attempt=task.taskAttemptId(),
                settled_epoch=order.settled_epoch,
                hadoop=job.hadoop,
                spool_uri=job.spool_uris[uid] if uid else job.channel_state_uri,
            )

        attempt = _Attempt(job, context)
        try:
            in_flight = attempt.write_all(batches, lane, order.deadline)
            attempt.prepare_commit()
        except BaseException as error:
            attempt.abort()
            if attempt.busy and isinstance(error, Exception):
                hide = Redactor(secrets_in(dict(job.sinks)))
                raise PreCommitError(hide(attempt.failure(error))) from _told(error, hide)
            raise
        report = TaskReport(
            partition, task.attemptNumber(), started_at, time.time(), attempt.parts,
            in_flight, attempt.pace.rows, attempt.pace.slice_rows,
        )  # fmt: skip
        result = _result(pickle.dumps((order.epoch, report)))
        _spare_the_collector()
        yield result

    return run


def _told(error: Exception, hide: Callable[[str], str]) -> Exception | None:
    """Return `error`, with its traceback for Spark's log; None if its text, or the text of one of
    its causes, holds a secret."""
    link: BaseException | None = error
    seen: set[int] = set()  # `raise error from error` makes a circle
    while link is not None and id(link) not in seen:
        seen.add(id(link))
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

    def __init__(self, job: EpochTasks, context: Callable[[str], WriterContext]) -> None:
        self._layout = job.layout
        self._sinks = job.sinks
        self._dead_letters = job.dead_letters
        self._processes = job.processes
        self._context = context
        self._overflow: Overflow | None = None
        self.pace = Pace(ALIGNED)
        self._writers: dict[str, CommittingWriter[Any]] = {}
        self._tallies: dict[str, Tally] = {}
        self.parts: dict[str, SinkReport] = {}
        self.busy = ""

    def write_all(
        self, batches: Iterable[pa.RecordBatch], lane: Lane, deadline: Deadline | None
    ) -> Lane:
        """Write the stream's batches, which are `lane`'s unless it is empty, until the deadline.
        Return the rows left."""
        if deadline is None:
            for batch in batches:
                self._split(batch)
            return ()
        self.pace = Pace(deadline)
        for batch in batches:
            written = self.pace.write(batch, self._split)
            if written == batch.num_rows:
                continue
            if lane:
                break
            if self._overflow is None:
                self._overflow = Overflow(self._context(""))
            self._overflow.write(batch.slice(written))
        if lane:
            failpoints.reached("channel-state-read")
            return rest_of(lane, self.pace.rows)
        return self._overflow.finish() if self._overflow is not None else ()

    def _split(self, batch: pa.RecordBatch) -> None:
        # Here, so that nothing further on has copies of a whole batch of Spark's: 64 MB by default.
        for uid, rows in chain.from_iterable(map(self._layout.split, in_parts(batch))):
            process = self._processes.get(uid)
            made = process.for_sink(rows) if process and rows.num_rows else (rows,)
            for part in chain.from_iterable(map(in_parts, made)):
                self.write(uid, part)

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
        self._tallies[uid].add(without(rows, refused))
        if refused:
            into = self._dead_letters[uid]
            letters = dead_letters_of(uid, self._context(uid).epoch, rows, refused)
            self.write(into, for_sink(self._sinks[into], letters))
        self.busy = ""

    def _new_writer(self, uid: str) -> CommittingWriter[Any]:
        sink = self._sinks[uid]
        context = self._context(uid)
        if uid not in self._dead_letters:
            writer = sink.create_writer(context)
        else:
            assert isinstance(sink, SelectiveSink)  # checked when the job was built
            writer = sink.create_selective_writer(context)
        upserts = sink if isinstance(sink, UpsertingSink) and sink.keys else None
        self._tallies[uid] = Tally(writer, upserts, context.partition_id)
        return spool.keeping(sink, writer, context)

    def prepare_commit(self) -> None:
        """Flush every sink."""
        for uid, writer in self._writers.items():
            self.busy = uid
            begun_s = time.perf_counter()
            committables = writer.prepare_commit()
            self.parts[uid].flush_s = time.perf_counter() - begun_s
            dumped = (spool.dump(self._sinks[uid], c) for c in committables)
            self.parts[uid].committables = tuple(dumped)
            self.parts[uid].targets = self._tallies[uid].close()
            self.parts[uid].keys = self._tallies[uid].keys()
        self.busy = ""

    def abort(self) -> None:
        """Give everything up; raises nothing."""
        if self._overflow is not None:
            self._overflow.discard()
        for writer in self._writers.values():
            with ignored("the abort of a writer"):
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


def run_tasks(frame: DataFrame, order: Order) -> list[TaskReport]:
    """Run an epoch's tasks, and return the reports of the winning attempts. Without `order.write`
    there are no reports. `frame` is the argument of `foreachBatch`, for a stream with `pre_commit`
    at its end. Called in the thread of `foreachBatch`."""
    frame.sparkSession.sparkContext.setLocalProperty(ORDER, order.to_text())
    # The frame is a wrapped RDD. To collect the frame itself would plan a second query in each
    # epoch, and serve its rows through a socket: 5 ms.
    rows = items_of(frame._jdf.queryExecution().analyzed().rdd().toJavaRDD().collect())
    return reports_of(order.epoch, [row.getBinary(0) for row in rows])


class LaneTasks:
    """Runs a task for each lane of a stage: rows left by earlier epochs.

    As a query, not as a plain RDD: its tasks run in the stream's own Python workers, which keep
    their sinks' connections. Each query is planned once, and runs as the RDD of its rows.
    """

    def __init__(self, job: EpochTasks) -> None:
        self._job = job
        self._planned: dict[tuple[Layout, int], Any] = {}

    def run(
        self, session: SparkSession, layout: Layout, lanes: Sequence[Lane], order: Order
    ) -> list[TaskReport]:
        """Return the reports of the winning attempts, by partition. Called in the thread of
        `foreachBatch`, with the session that it gets in all epochs."""
        count = len(lanes)
        rows = self._planned.get((layout, count))
        if rows is None:
            task = pre_commit(replace(self._job, layout=layout), of_lanes=True)
            frame = session.range(0, count, 1, count).mapInArrow(task, RESULT_SCHEMA)
            rows = self._planned[layout, count] = frame._jdf.javaRDD()
        order = replace(order, lanes=tuple(lanes))
        session.sparkContext.setLocalProperty(ORDER, order.to_text())
        reports = reports_of(order.epoch, [row.get(0) for row in items_of(rows.collect())])
        return sorted(reports, key=lambda report: report.partition)


def reports_of(epoch: int, rows: Iterable[bytes]) -> list[TaskReport]:
    """Return the reports in the tasks' rows. Raises RuntimeError for a row of another epoch."""
    found = [pickle.loads(row) for row in rows]
    if others := {of_epoch for of_epoch, _ in found} - {epoch}:
        raise RuntimeError(f"tasks of epoch {epoch} ran as those of {sorted(others)}")
    return [report for _, report in found]

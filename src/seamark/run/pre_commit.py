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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from seamark.checkpoint.channel_state import Lane, Stage, lanes_of
from seamark.checkpoint.task_reports import TaskReport
from seamark.contracts.sink import WriterContext
from seamark.model.errors import PreCommitError
from seamark.model.redaction import Redactor, secrets_in
from seamark.run.in_flight import Deadline, read_lane
from seamark.run.layout import Layout
from seamark.run.task_attempt import EpochTasks, TaskAttempt
from seamark.spark.java_calls import items_of

if TYPE_CHECKING:  # it is the driver's: each worker would import Spark's plans and jars with it
    from seamark.run.gathering import FewerTasks

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

        attempt = TaskAttempt(job, context)
        try:
            in_flight = attempt.write_all(batches, lane, order.deadline)
            attempt.prepare_commit()
        except BaseException as error:
            attempt.abort()
            if attempt.busy and isinstance(error, Exception):
                hide = Redactor(secrets_in(dict(job.sinks)))
                raise PreCommitError(hide(attempt.failure(error))) from _shown_cause(error, hide)
            raise
        report = TaskReport(
            partition, task.attemptNumber(), started_at, time.time(), attempt.parts,
            in_flight, attempt.pace.rows, attempt.pace.slice_rows,
        )  # fmt: skip
        result = _result(pickle.dumps((order.epoch, report)))
        _spare_the_collector()
        yield result

    return run


def _shown_cause(error: Exception, hide: Callable[[str], str]) -> Exception | None:
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


def run_tasks(
    frame: DataFrame, order: Order, fewer: "FewerTasks | None" = None
) -> list[TaskReport]:
    """Run an epoch's tasks, and return the reports of the winning attempts. Without `order.write`
    there are no reports. `frame` is the argument of `foreachBatch`, for a stream with `pre_commit`
    at its end. Called in the thread of `foreachBatch`."""
    frame.sparkSession.sparkContext.setLocalProperty(ORDER, order.to_text())
    # The frame is a wrapped RDD. To collect the frame itself would plan a second query in each
    # epoch, and serve its rows through a socket: 5 ms.
    rdd = frame._jdf.queryExecution().analyzed().rdd()
    if fewer is not None:
        rdd = fewer.of(rdd)
    rows = items_of(rdd.toJavaRDD().collect())
    return reports_of(order.epoch, [row.getBinary(0) for row in rows])


class LaneTasks:
    """Runs a task for each lane of a stage: rows left by earlier epochs.

    As a query, not as a plain RDD: its tasks run in the stream's own Python workers, which keep
    their sinks' connections. Each query is planned once, and runs as the RDD of its rows.
    """

    def __init__(self, job: EpochTasks) -> None:
        self._job = job
        self._planned: dict[tuple[Layout, tuple[str, ...] | None, int], Any] = {}

    def run(self, session: SparkSession, stage: Stage, order: Order) -> list[TaskReport]:
        """Return the reports of the winning attempts, by partition. Called in the thread of
        `foreachBatch`, with the session that it gets in all epochs."""
        layout, count = Layout(stage.uids, stage.columns), len(stage.lanes)
        key = layout, stage.processes, count
        if (rows := self._planned.get(key)) is None:
            made, own = stage.processes, self._job.processes
            processes = own if made is None else {uid: own[uid] for uid in made}
            job = replace(self._job, layout=layout, processes=processes)
            task = pre_commit(job, of_lanes=True)
            frame = session.range(0, count, 1, count).mapInArrow(task, RESULT_SCHEMA)
            rows = self._planned[key] = frame._jdf.javaRDD()
        order = replace(order, lanes=stage.lanes)
        session.sparkContext.setLocalProperty(ORDER, order.to_text())
        reports = reports_of(order.epoch, [row.get(0) for row in items_of(rows.collect())])
        return sorted(reports, key=lambda report: report.partition)


def reports_of(epoch: int, rows: Iterable[bytes]) -> list[TaskReport]:
    """Return the reports in the tasks' rows. Raises RuntimeError for a row of another epoch."""
    return of_epoch(epoch, [pickle.loads(row) for row in rows])


def of_epoch(epoch: int, reports: Sequence[tuple[int, TaskReport]]) -> list[TaskReport]:
    """Return the reports, each given with its epoch. Raises RuntimeError for one of another."""
    if others := {of for of, _ in reports} - {epoch}:
        raise RuntimeError(f"tasks of epoch {epoch} ran as those of {sorted(others)}")
    return [report for _, report in reports]

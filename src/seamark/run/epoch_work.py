"""The work of each epoch, from the driver: the rows left by earlier epochs, then the stream's.

`StreamRun` makes one `EpochWork` for its query. Without channel state, and with `unaligned` off, an
epoch is one Spark job over the stream. Otherwise a job for each stage of channel state comes first,
until the deadline; if rows of a stage are left, the stream's own rows are all left too, as a later
stage. So rows of one partition, or one key, never overtake each other (docs/unaligned.md).

`BatchLimit` lifts Spark's limit on the bytes of an Arrow batch while rows are small. Under a limit,
Spark (`ArrowWriter.sizeInBytes`) adds up the sizes of a batch's buffers again for every row: a
sixth of an executor's CPU in a plain copy. If the last epoch's rows were small enough to keep a
full batch far below the limit, and so many that this counts, the next epoch is written without it.
A run's first epoch has the limit, and so have all after one of large rows, unless these fill no
such batch. So an epoch that grows out of hand and kills a driver runs again under the limit, and so
do the later ones.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median_low

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from seamark.api.config import CheckpointConfig
from seamark.checkpoint.channel_state import NO_CHANNEL_STATE, ChannelState, Lane, Stage
from seamark.checkpoint.task_reports import TaskReport
from seamark.model.errors import UserError
from seamark.run.gathering import FewerTasks
from seamark.run.held_watermark import KeyedEpochs
from seamark.run.in_flight import FIRST_SLICE_ROWS, Deadline
from seamark.run.pre_commit import LaneTasks, Order, run_tasks
from seamark.run.task_attempt import EpochTasks
from seamark.spark.java.compiled import loaded_class

log = logging.getLogger(__name__)

FIRST_ROWS = 10_000
"""The rows that each source gives to a job's first epoch: nothing is known of its sinks' pace."""
FILL = 0.98
"""The rows that an epoch gets, with the rows left to it, as a part of those that it can write. Rows
that wait cost the next epoch a Spark job before its own; a sink that slows down leaves some."""
GROWTH = 1.25
"""What an epoch can write, as a multiple of the rows that it has all written after its deadline."""
_NO_LIMIT = -1
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NO_BYTES_LIMIT = 2**31 - 1
_FAR_BELOW = 8
_MANY_BATCHES = 2
"""The full batches of a task that are worth it. A slower job's tasks stay bounded in bytes."""


class BatchLimit:
    """The limit of one query. `after_epoch` gets the query's own session, as `foreachBatch`."""

    def __init__(self) -> None:
        self._given = ""
        self._small_bytes = self._far_below = 0.0
        self._many_rows = 0
        self._lifted = False

    def after_epoch(self, session: SparkSession, tasks: Sequence[TaskReport]) -> None:
        """Set the next epoch's limit by the sizes of the rows this epoch's tasks wrote."""
        if not self._given:
            self._given = str(session.conf.get(_BYTES))
            # The most bytes a small row may have; without a limit on rows the limit on bytes stays.
            rows = max(0, int(str(session.conf.get(_ROWS))))
            self._far_below = _bytes(session, self._given) / _FAR_BELOW
            self._small_bytes = self._far_below / rows if rows else 0
            self._many_rows = _MANY_BATCHES * rows
        sinks = [sink for task in tasks for sink in task.sinks.values()]
        rows = sum(sink.rows for sink in sinks)
        size = sum(sink.data_bytes for sink in sinks)
        small = size <= rows * self._small_bytes
        if not small and size > self._far_below:  # less may be one row in a quiet moment
            self._small_bytes = -1
        lift = small and rows >= len(tasks) * self._many_rows
        if rows and lift != self._lifted:
            session.conf.set(_BYTES, _NO_BYTES_LIMIT if lift else self._given)
            self._lifted = lift


def _bytes(session: SparkSession, text: str) -> int:
    """Read ``64MB`` or ``67108864b`` as Spark does."""
    assert session._jvm is not None
    return int(session._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


class EpochWork:
    """Runs the tasks of a query's epochs. `state` is the channel state of the last committed epoch;
    `once`: the query has one epoch; `tables`: it reads tables; `ends`: Spark ends it when it has
    read all there is. Raises UserError if this version of Spark does not let its sources be held,
    unless it is for the end alone."""

    def __init__(
        self, tasks: EpochTasks, checkpoint: CheckpointConfig, state: ChannelState,
        keyed: KeyedEpochs, spark: SparkSession, *, once: bool = False, tables: bool = False,
        ends: bool = False,
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._lanes = LaneTasks(tasks)
        self._warm = False
        self._unaligned = checkpoint.unaligned and not once  # no later epoch would write the rest
        self._timeout_s = checkpoint.aligned_timeout_s
        self._most_bytes = int(checkpoint.max_in_flight_bytes)
        self._slice_rows = FIRST_SLICE_ROWS
        self._capacity = FIRST_ROWS / FILL
        self._paced = False
        self._aligning = 0
        self._lock = threading.Lock()
        self._keyed = keyed
        self._intake = None
        self._holds = self._must_hold = False
        self._holding: int | None = None
        needed = self._unaligned or state.stages or keyed.waiting or tables
        if needed or ends:
            try:
                self._intake = loaded_class(spark._jvm, "SeamarkIntake").newInstance()
            except (Py4JError, TypeError) as error:
                if not needed:
                    return
                raise _cannot_hold(error) from None
            if ends and not tables:
                self._intake.holdAtEnd()
            self._holds, self._must_hold = tables or ends, tables
            self.limit_intake(state)

    def attach(self, spark: SparkSession, location: str) -> None:
        """Called immediately before the query with this checkpoint location starts."""
        if self._intake is not None:
            self._intake.putInto(spark.streams._jsqm, location)

    @contextlib.contextmanager
    def aligned(self, *, keyed: bool) -> Iterator[None]:
        """Inside the block each epoch that begins writes all rows, those of earlier epochs too;
        with `keyed`, keyed operators process all of theirs as well."""
        with self._lock:
            self._aligning += 1
            self._keyed.aligning += keyed
        try:
            yield
        finally:
            with self._lock:
                self._aligning -= 1
                self._keyed.aligning -= keyed

    def warm_up(self, session: SparkSession, order: Order) -> None:
        """Start the Python workers before the time of a run's first epoch begins: it takes seconds,
        and an epoch must not consist of nothing else."""
        if self._unaligned and not self._warm:
            empty: tuple[Lane, ...] = ((),) * session.sparkContext.defaultParallelism
            layout = self._tasks.layout
            self._lanes.run(session, Stage(layout.uids, layout.columns, empty), order)
        self._warm = True

    def run(
        self, frame: DataFrame, order: Order, state: ChannelState, fewer: FewerTasks
    ) -> tuple[list[TaskReport], ChannelState]:
        """Run an epoch's tasks. Return the reports of the winning attempts, and the rows left.
        `fewer` is for epochs without channel state: the sources of others are held by what so many
        tasks can write."""
        if not order.write:
            if state.rows:
                log.warning("epoch %d skips %d rows of channel state", order.epoch, state.rows)
            return run_tasks(frame, order), NO_CHANNEL_STATE
        if not (self._unaligned or state.stages):
            return run_tasks(frame, order, fewer), NO_CHANNEL_STATE
        begun_s = time.monotonic()
        aligned = bool(self._aligning) or not self._unaligned
        timeout_s = math.inf if aligned else self._timeout_s
        order = replace(order, deadline=Deadline(time.time(), timeout_s, self._slice_rows))
        reports, stages = self._drain(frame.sparkSession, order, state, begun_s + timeout_s)
        assert order.deadline is not None
        deadline = replace(order.deadline, at_once=bool(stages))
        own = run_tasks(frame, replace(order, first_partition=len(reports), deadline=deadline))
        lanes = tuple(task.in_flight for task in sorted(own, key=lambda task: task.partition))
        layout = self._tasks.layout
        processes = tuple(self._tasks.processes)
        own_left = Stage(layout.uids, layout.columns, lanes, processes, layout.types)
        left = ChannelState.of([*stages, own_left])
        if not aligned:
            self._learn([*reports, *own], left, time.monotonic() - begun_s)
        return [*reports, *own], left

    def _drain(
        self, session: SparkSession, order: Order, state: ChannelState, end_s: float
    ) -> tuple[list[TaskReport], list[Stage]]:
        """Write the rows left by earlier epochs, stage by stage: all rows of the first before any
        of the next. Return the reports, and the stages left."""
        reports: list[TaskReport] = []
        stages = list(state.stages)
        while stages and (not reports or time.monotonic() < end_s):
            stage = stages[0]
            first = replace(order, first_partition=len(reports))
            done = self._lanes.run(session, stage, first)
            reports += done
            left = ChannelState.of([replace(stage, lanes=tuple(task.in_flight for task in done))])
            stages[:1] = left.stages
            if left.stages:
                break
        return reports, stages

    def _learn(self, tasks: list[TaskReport], left: ChannelState, took_s: float) -> None:
        """Note what the sinks can take: rows in a slice, and in an epoch."""
        if slices := [task.slice_rows for task in tasks if task.rows]:
            self._slice_rows = median_low(slices)
        done = sum(task.rows for task in tasks)
        first, self._paced = not self._paced, True
        if left.stages:
            if not first:  # a run's first epoch is no measure: all is new to its machine
                self._capacity = done
        else:
            share = self._timeout_s / took_s
            # A part of one row is none: two more, or it would stay at one for ever.
            more = max(done * (share if share > 1 else GROWTH), done + 2)
            self._capacity = max(self._capacity, more)

    def limit_intake(self, left: ChannelState) -> None:
        """Set what the sources give to the next epoch, which begins with the rows left, those of
        keyed operators too. Called when the epoch's tasks have ended."""
        if self._intake is None:
            return
        rows = max(round(FILL * self._capacity) - left.rows, 0) if self._unaligned else _NO_LIMIT
        full = self._unaligned and left.rows >= self._capacity
        waiting = sum(part.persisted for part in self._keyed.figures.values())
        paused = full or left.size_bytes + waiting > self._most_bytes
        self._intake.set(bool(left.stages) or self._keyed.waiting, paused, rows)

    def hold(self, epoch: int, held: bool) -> None:
        """Keep Spark from planning a next epoch that reads tables, and from ending a bounded query;
        with False, let it. Called when an epoch's tasks have ended, and when it is committed.
        Raises UserError if the next epoch could not be kept from reading the tables too early."""
        if self._intake is not None and self._holds:
            if self._must_hold and not self._intake.isAttached():
                raise _cannot_hold(self._intake.problem() or "they were not found in time")
            with self._lock:
                if held or epoch == self._holding:  # a later epoch may have been processed by now
                    self._holding = epoch
                    self._intake.hold(held)


def _cannot_hold(why: object) -> UserError:
    return UserError(
        "unaligned checkpoints, and tables that a query joins, need to hold the sources of Spark's "
        f"query, which this version of Spark does not allow ({why}); leave them out"
    )

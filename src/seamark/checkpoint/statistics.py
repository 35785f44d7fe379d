"""The statistics of one epoch, made from its progress, its tasks and Spark's measurements; and of a
savepoint, as `savepoints/take/running.py` reports it.

Pure; `checkpoint/statistics_recorder.py` calls it off the epoch's path. Figures: docs/FORMAT.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from seamark.checkpoint.task_reports import EpochProgress, KeyedFigures
from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpointStatistics,
    TaskCheckpointStatistics,
)
from seamark.model.stats_summary import UNKNOWN


@dataclass(frozen=True)
class SavepointEnd:
    """The end of a savepoint, `took_s` seconds after its request: whole at `path`, with `size`
    bytes and its figures of each operator; or with a `failure`."""

    took_s: float
    path: str = ""
    size: int = UNKNOWN
    operators: Sequence[TaskCheckpointStatistics] = ()
    failure: str = ""

    def of(self, begun: CheckpointStatistics) -> CheckpointStatistics:
        """Return the statistics of a savepoint with this end; `begun`: by `describe_savepoint`."""
        took_ms = round(self.took_s * 1e3)
        ended_at = begun.trigger_timestamp + took_ms
        subtasks = sum(task.num_subtasks for task in self.operators)
        rows = [task.rows for task in self.operators]
        return replace(
            begun,
            status=CheckpointStatus.FAILED if self.failure else CheckpointStatus.COMPLETED,
            end_to_end_duration=took_ms,
            latest_ack_timestamp=UNKNOWN if self.failure else ended_at,
            checkpointed_size=self.size,
            state_size=self.size,
            external_path=self.path,
            tasks=tuple(self.operators),
            rows=UNKNOWN if UNKNOWN in rows else sum(rows),
            num_subtasks=subtasks,
            num_acknowledged_subtasks=subtasks,
            failure_timestamp=ended_at if self.failure else UNKNOWN,
            failure_message=self.failure,
        )


def describe_savepoint(epoch: int, format_: str, asked_at: float) -> CheckpointStatistics:
    """Return the statistics of a savepoint of `epoch` while it is written. `format_`: Flink's,
    CANONICAL or NATIVE; `asked_at`: seconds since 1970."""
    return CheckpointStatistics(
        id=epoch,
        status=CheckpointStatus.IN_PROGRESS,
        trigger_timestamp=round(asked_at * 1e3),
        checkpoint_type="SAVEPOINT",
        is_savepoint=True,
        savepoint_format=format_,
    )


@dataclass(frozen=True)
class OperatorFigures:
    """Spark's and the storage's figures of one source or stateful operator (`kind`) in one epoch.

    `sizes` has, by partition, the bytes of state uploaded by this epoch, and read by its restore.
    """

    uid: str
    kind: str
    name: str
    rows: int = 0
    sizes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochFigures:
    """The figures of one epoch measured outside the coordinator; `record_bytes` is the size of its
    records and of its entries in Spark's logs."""

    record_bytes: int = 0
    spark_durations: Mapping[str, int] = field(default_factory=dict)
    operators: Sequence[OperatorFigures] = ()


NO_FIGURES = EpochFigures()


def describe(
    progress: EpochProgress,
    status: CheckpointStatus,
    sinks: Mapping[str, str],
    figures: EpochFigures = NO_FIGURES,
    *,
    failure: str = "",
    failed_s: float = 0.0,
    expected_subtasks: int = 0,
) -> CheckpointStatistics:
    """Return the statistics of one epoch.

    `sinks` are the descriptions of the job's sinks by uid; `failed_s` is the monotonic time of its
    failure; `expected_subtasks` stands in for the number of subtasks while it is unknown.
    """
    clock = _Clock(progress)
    keyed = progress.keyed
    tasks = [_operator(o, clock, status, keyed.get(o.uid)) for o in figures.operators]
    if progress.pre_committed_s:
        tasks += [_sink(uid, name, progress, clock, status) for uid, name in sinks.items()]
    ends = [clock.since_trigger_ms(task.ended_at) for task in progress.tasks]
    operators = [size for o in figures.operators for size in o.sizes.values()]
    subtasks = sum(task.num_subtasks for task in tasks)
    persisted = progress.persisted_bytes + sum(part.persisted for part in keyed.values())
    return CheckpointStatistics(
        id=progress.epoch,
        status=status,
        trigger_timestamp=clock.triggered_ms,
        latest_ack_timestamp=clock.acknowledged_ms,
        end_to_end_duration=between_ms(progress.started_s, failed_s or progress.committed_s),
        checkpointed_size=figures.record_bytes + sum(new for new, _ in operators),
        state_size=figures.record_bytes
        + progress.persisted_bytes
        + sum(full for _, full in operators),
        start_delay=max(
            (clock.since_trigger_ms(task.started_at) for task in progress.tasks), default=UNKNOWN
        ),
        alignment_duration=max(ends) - min(ends) if ends else UNKNOWN,
        sync_duration=clock.sync_ms,
        async_duration=between_ms(progress.decided_s, progress.committed_s),
        processed_data=sum(task.processed_data for task in tasks),
        persisted_data=persisted,
        unaligned=persisted > 0,
        rows=progress.rows,
        num_subtasks=subtasks or expected_subtasks,
        num_acknowledged_subtasks=sum(task.num_acknowledged_subtasks for task in tasks),
        failure_timestamp=clock.triggered_ms + between_ms(progress.started_s, failed_s)
        if failed_s
        else UNKNOWN,
        failure_message=failure,
        spark_durations=dict(figures.spark_durations),
        tasks=tuple(tasks),
    )


def between_ms(start_s: float, end_s: float) -> int:
    """Return the time between two monotonic times; UNKNOWN if one has not come."""
    return round((end_s - start_s) * 1e3) if start_s and end_s else UNKNOWN


class _Clock:
    """The epoch's moments in milliseconds, counted from its trigger by the monotonic clock.

    A task's times are by the clock of its machine. They are clipped to the time that passed in the
    driver, so that a wrong or jumping clock cannot show more.
    """

    def __init__(self, progress: EpochProgress) -> None:
        self._progress = progress
        self.triggered_ms = round(progress.triggered_at * 1e3)
        self.sync_ms = between_ms(progress.started_s, progress.pre_committed_s)
        self.acknowledged_ms = UNKNOWN if self.sync_ms < 0 else self.triggered_ms + self.sync_ms

    def since_trigger_ms(self, at: float) -> int:
        """Return the time from the trigger to a task's moment."""
        return min(max(round((at - self._progress.triggered_at) * 1e3), 0), max(self.sync_ms, 0))


def _operator(
    figures: OperatorFigures,
    clock: _Clock,
    status: CheckpointStatus,
    keyed: KeyedFigures | None,
) -> TaskCheckpointStatistics:
    """Return the statistics of a source or stateful operator. A source has one subtask, its entry
    in Spark's offset log; an operator has one per partition."""
    number = max(len(figures.sizes), 1)
    left = keyed is not None and keyed.persisted > 0  # by which of its tasks is not known
    return TaskCheckpointStatistics(
        uid=figures.uid,
        kind=figures.kind,
        name=figures.name,
        status=status,
        latest_ack_timestamp=clock.acknowledged_ms,
        end_to_end_duration=clock.sync_ms,
        checkpointed_size=sum(new for new, _ in figures.sizes.values()),
        state_size=sum(full for _, full in figures.sizes.values()),
        rows=figures.rows,
        processed_data=keyed.processed if keyed else 0,
        persisted_data=keyed.persisted if keyed else 0,
        num_subtasks=number,
        num_acknowledged_subtasks=number,
        metrics=dict(figures.metrics),
        subtasks=tuple(
            SubtaskCheckpointStatistics(
                index=partition, checkpointed_size=new, state_size=full, unaligned=left
            )
            for partition, (new, full) in sorted(figures.sizes.items())
        ),
    )


def _sink(
    uid: str, name: str, progress: EpochProgress, clock: _Clock, status: CheckpointStatus
) -> TaskCheckpointStatistics:
    """Return the statistics of a sink. Every task of the pre-commit is a subtask of every sink,
    with zeros where it had no rows."""
    last_end_ms = max((clock.since_trigger_ms(t.ended_at) for t in progress.tasks), default=0)
    commit_ms = round(progress.sink_commit_s[uid] * 1e3) if uid in progress.sink_commit_s else -1
    subtasks = []
    for task in sorted(progress.tasks, key=lambda task: task.partition):
        part = task.sinks.get(uid)
        end_ms = clock.since_trigger_ms(task.ended_at)
        size = sum(map(len, part.committables)) if part else 0
        subtasks.append(
            SubtaskCheckpointStatistics(
                index=task.partition,
                ack_timestamp=clock.triggered_ms + end_ms,
                end_to_end_duration=end_ms,
                checkpointed_size=size,
                state_size=size,
                sync_duration=round((part.write_s + part.flush_s) * 1e3) if part else 0,
                async_duration=commit_ms,
                alignment_duration=last_end_ms - end_ms,
                start_delay=clock.since_trigger_ms(task.started_at),
                processed_data=part.data_bytes if part else 0,
                persisted_data=sum(segment.size_bytes for segment in task.in_flight),
                unaligned=bool(task.in_flight),
                rows=part.rows if part else 0,
            )
        )
    return TaskCheckpointStatistics(
        uid=uid,
        kind="sink",
        name=name,
        status=status,
        latest_ack_timestamp=max((s.ack_timestamp for s in subtasks), default=UNKNOWN),
        end_to_end_duration=max((s.end_to_end_duration for s in subtasks), default=UNKNOWN),
        checkpointed_size=sum(s.checkpointed_size for s in subtasks),
        state_size=sum(s.state_size for s in subtasks),
        sync_duration=max((s.sync_duration for s in subtasks), default=UNKNOWN),
        async_duration=commit_ms,
        processed_data=sum(s.processed_data for s in subtasks),
        persisted_data=sum(s.persisted_data for s in subtasks),
        rows=sum(s.rows for s in subtasks),
        num_subtasks=len(subtasks),
        num_acknowledged_subtasks=len(subtasks),
        subtasks=tuple(subtasks),
    )

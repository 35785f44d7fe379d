"""The flow through each part of a job in this driver, added up as checkpoints end.

`StatisticsRecorder` hands each ended checkpoint over on its own thread; the REST interface and the
Prometheus metrics read the sums, without a look at the storage. They outlive the runs of a
restarted job, and begin anew with the program.
"""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    TaskCheckpointStatistics,
)
from seamark.model.rates import (
    NO_RATES,
    OFFSETS_BEHIND,
    WINDOW_CHECKPOINTS,
    WINDOW_MS,
    Rates,
    busy_ms,
    rates,
)
from seamark.model.stats_summary import UNKNOWN

LATE_ROWS = "numRowsDroppedByWatermark"
"""Spark's name for it among an operator's metrics."""


@dataclass(frozen=True)
class PartFigures:
    """One source, operator or sink, over the completed checkpoints of this driver.

    `rows`: read from a source, changed in an operator's state, written to a sink. `data_bytes`: in
    Arrow, of a sink. `busy_ms`: None if it is not measured. `late_rows`: dropped by an operator as
    older than its watermark. `subtasks`, `state_bytes`, Spark's `metrics` and `lag` (None: its
    system does not tell) are those of the last checkpoint with figures of it.
    """

    rows: int = 0
    data_bytes: int = 0
    busy_ms: float | None = None
    subtasks: int = UNKNOWN
    state_bytes: int = 0
    late_rows: int = 0
    metrics: Mapping[str, int] = field(default_factory=dict)
    lag: int | None = None
    rates: Rates = NO_RATES


class FlowFigures:
    """`slots` returns the number of tasks Spark runs at once; called once for each checkpoint."""

    def __init__(self, slots: Callable[[], int] = lambda: 1) -> None:
        self._slots_now = slots
        self._lock = threading.Lock()
        self._slots = 1
        self._parts: dict[str, PartFigures] = {}
        self._recent: deque[CheckpointStatistics] = deque()
        self._listeners: list[Callable[[CheckpointStatistics], None]] = []
        self.commits = SinkCounts(CommitCounts)
        self.triggered = 0
        """Counted as epochs begin; `completed` and `failed` a moment after an epoch's end."""
        self.completed = 0
        self.failed = 0
        self.last_completed: CheckpointStatistics | None = None
        self.last_failed: CheckpointStatistics | None = None

    def listen(self, listener: Callable[[CheckpointStatistics], None]) -> None:
        """Call `listener` with each checkpoint taken in from now on."""
        self._listeners.append(listener)

    def add(self, checkpoint: CheckpointStatistics) -> None:
        """Take in a checkpoint that has ended."""
        slots = max(self._slots_now(), 1)
        for listener in self._listeners:
            listener(checkpoint)
        with self._lock:
            self._slots = slots
            if checkpoint.status is not CheckpointStatus.COMPLETED:
                self.failed += 1
                self.last_failed = checkpoint
                return
            self.completed += 1
            self.last_completed = checkpoint
            for task in checkpoint.tasks:
                before = self._parts.get(task.uid, PartFigures())
                self._parts[task.uid] = self._added(before, task, checkpoint)
            self._recent.append(checkpoint)
            oldest_ms = checkpoint.trigger_timestamp - WINDOW_MS
            while (
                len(self._recent) > WINDOW_CHECKPOINTS
                and self._recent[0].trigger_timestamp < oldest_ms
            ):
                self._recent.popleft()

    def _added(
        self, before: PartFigures, task: TaskCheckpointStatistics, checkpoint: CheckpointStatistics
    ) -> PartFigures:
        worked = busy_ms(checkpoint, task.uid, self._slots)
        return replace(
            before,
            rows=before.rows + task.rows,
            data_bytes=before.data_bytes + task.processed_data,
            busy_ms=before.busy_ms if worked is None else (before.busy_ms or 0.0) + worked,
            subtasks=task.num_subtasks,
            state_bytes=task.state_size,
            late_rows=before.late_rows + task.metrics.get(LATE_ROWS, 0),
            metrics=task.metrics,
            lag=task.metrics.get(OFFSETS_BEHIND, before.lag),
        )

    def of(self, uid: str) -> PartFigures:
        """Return the figures of one part, with its rates up to now."""
        with self._lock:
            part, recent, slots = self._parts.get(uid), list(self._recent), self._slots
        if part is None:
            return PartFigures()
        return replace(part, rates=rates(recent, uid, time.time() * 1e3, slots))

    def uids(self) -> Sequence[str]:
        """Return the parts with figures."""
        with self._lock:
            return list(self._parts)


@dataclass
class CommitCounts:
    """One sink's transactions in this driver, counted as they end.

    `checkpoint/sink_commits.py` counts, in one thread at a time; another thread may read counts a
    moment old. Metrics show them under Flink's names.

    `committed`, `already_committed`: after the decision, by the answer. `retried`: answers without
    an outcome yet. `lost`: proved gone, or not known to be visible; transactions with rows written
    again from a spool count in `rewritten` instead. `aborted`: of epochs stored and not decided.
    `lingering_aborted`: of attempts never stored.
    """

    committed: int = 0
    already_committed: int = 0
    retried: int = 0
    lost: int = 0
    rewritten: int = 0
    aborted: int = 0
    lingering_aborted: int = 0


SinkCounts = defaultdict[str, CommitCounts]
"""The counts by the sink's uid; they outlive the runs of a restarted job."""

"""The reports of an epoch's tasks, and their sums for each sink.

`run/pre_commit.py` makes the reports; `checkpoint/statistics.py` shows them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seamark.checkpoint.channel_state import Lane
from seamark.checkpoint.row_hash import RowSums
from seamark.checkpoint.sink_epoch import MOST_KEYED_ROWS, PreparedSinks, SinkEpoch, TaskLedger
from seamark.protocol.states import AttemptEvent, AttemptState, advance


@dataclass
class SinkReport:
    """One task's writes to one sink: rows, their bytes in Arrow, seconds in `write` and in
    `prepare_commit`, the dumped committables, and the rows' sums and keys as in `TaskLedger`.
    `file_bytes`: of a `FileSizeSink` with a size, else 0."""

    rows: int = 0
    committables: tuple[bytes, ...] = ()
    data_bytes: int = 0
    write_s: float = 0.0
    flush_s: float = 0.0
    targets: Mapping[str, RowSums] = field(default_factory=dict)
    keys: bytes | None = None
    file_bytes: int = 0


@dataclass(frozen=True)
class TaskReport:
    """One task: the winning attempt of one partition. Times are seconds since 1970 by the clock of
    the task's machine, for people only; `sinks` holds the sinks with rows.

    `in_flight` are the task's rows that it has not written; `rows` the stream's rows that it has
    written in slices, and `slice_rows` the rows of its last slice (`run/in_flight.py: Pace`).
    """

    partition: int
    attempt: int
    started_at: float
    ended_at: float
    sinks: Mapping[str, SinkReport]
    in_flight: Lane = ()
    rows: int = 0
    slice_rows: int = 0


def sink_epochs(tasks: Sequence[TaskReport]) -> PreparedSinks:
    """Add up the tasks of an epoch, by sink uid."""
    reports: dict[str, list[tuple[int, SinkReport]]] = {}
    for task in tasks:
        for uid, part in task.sinks.items():
            reports.setdefault(uid, []).append((task.partition, part))
    return PreparedSinks((uid, _added_up(parts)) for uid, parts in reports.items())


def _added_up(parts: Sequence[tuple[int, SinkReport]]) -> SinkEpoch:
    rows = sum(part.rows for _, part in parts)
    return SinkEpoch(
        rows,
        tuple(data for _, part in parts for data in part.committables),
        tuple(
            TaskLedger(
                task, len(part.committables), part.targets,
                part.keys if rows <= MOST_KEYED_ROWS else None,
            )
            for task, part in parts
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class KeyedFigures:
    """Bytes of rows with the state of a keyed operator: those that the epoch has processed, and
    those that wait for the next one."""

    processed: int = 0
    persisted: int = 0


@dataclass
class EpochProgress:
    """One epoch in this driver: its state, and monotonic times in seconds.

    `triggered_at` is the one wall-clock time (seconds since 1970), for people; the epoch's later
    moments are shown relative to it. `persisted_bytes` is the size of its channel state; `keyed`
    has the keyed operators' figures by uid; `sink_commit_s` the duration of each sink's commit.
    """

    epoch: int
    rows: int
    state: AttemptState
    started_s: float
    pre_committed_s: float = 0.0
    stored_s: float = 0.0
    decided_s: float = 0.0
    commit_started_s: float = 0.0
    committed_s: float = 0.0
    triggered_at: float = field(default_factory=time.time)
    tasks: Sequence[TaskReport] = ()
    persisted_bytes: int = 0
    keyed: Mapping[str, KeyedFigures] = field(default_factory=dict)
    sink_commit_s: dict[str, float] = field(default_factory=dict)

    def moved(self, event: AttemptEvent) -> None:
        """Make one move of the protocol's table."""
        self.state = advance(f"epoch {self.epoch}", self.state, event)

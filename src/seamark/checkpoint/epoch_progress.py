"""How far one epoch is in this driver, and when it got there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from seamark.checkpoint.task_reports import TaskReport
from seamark.protocol.states import AttemptEvent, AttemptState, advance


@dataclass
class EpochProgress:
    """One epoch in this driver: its state, and monotonic times in seconds.

    `triggered_at` is the one wall-clock time (seconds since 1970), for people; whatever is shown of
    the epoch's later moments is counted from it. `sink_commit_s` is how long each sink's commit
    took.
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
    sink_commit_s: dict[str, float] = field(default_factory=dict)

    def moved(self, event: AttemptEvent) -> None:
        """Make one move of the protocol's table."""
        self.state = advance(f"epoch {self.epoch}", self.state, event)

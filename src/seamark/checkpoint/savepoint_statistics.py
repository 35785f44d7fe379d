"""The statistics of one savepoint, as the checkpoint history shows it beside its epoch's.

Pure. `savepoints/take/running.py` reports it to `StatisticsRecorder`; Figures: docs/FORMAT.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
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

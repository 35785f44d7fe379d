"""The summary of a job's checkpoints: counts, the latest of each kind, figures, the history.

The single checkpoint is `model/checkpoint_statistics.py`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.stats_summary import StatsSummary

SUMMARISED = (
    "checkpointed_size",
    "state_size",
    "end_to_end_duration",
    "processed_data",
    "persisted_data",
    "sync_duration",
    "async_duration",
    "alignment_duration",
    "start_delay",
)


@dataclass(frozen=True)
class RestoredCheckpointStatistics:
    """The checkpoint restored by a driver, and when."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


@dataclass(frozen=True)
class CheckpointCounts:
    """The numbers of checkpoints since the job's directory was made, deleted ones included."""

    restored: int = 0
    in_progress: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        """The number of triggered checkpoints."""
        return self.in_progress + self.completed + self.failed

    def to_json(self) -> dict[str, int]:
        """Return it as Flink's ``counts``."""
        return {"total": self.total, **asdict(self)}


@dataclass(frozen=True)
class CheckpointingStatistics:
    """The statistics of a job's checkpoints and savepoints. `history` is newest first. `summary`,
    by the name of a figure, covers the completed checkpoints in `history`, without savepoints
    (Flink's includes them)."""

    counts: CheckpointCounts
    summary: Mapping[str, StatsSummary]
    latest_completed: CheckpointStatistics | None
    latest_savepoint: CheckpointStatistics | None
    latest_failed: CheckpointStatistics | None
    latest_restored: RestoredCheckpointStatistics | None
    history: Sequence[CheckpointStatistics]

    def find(self, checkpoint_id: int, triggered: int | None = None) -> CheckpointStatistics | None:
        """Return the newest attempt at a checkpoint, or the attempt triggered at `triggered`. Falls
        back to a savepoint of the epoch if the history has no checkpoint of it; else None."""
        attempts = [
            one
            for one in self.history
            if one.id == checkpoint_id and triggered in (None, one.trigger_timestamp)
        ]
        return next(iter([*checkpoints(attempts), *attempts]), None)

    def to_json(self, *, history: bool = True) -> dict[str, Any]:
        """Return it as Flink's ``/jobs/:id/checkpoints``, or without its ``history``."""

        latest = {
            "completed": self.latest_completed,
            "savepoint": self.latest_savepoint,
            "failed": self.latest_failed,
        }
        summary = {name: part.to_json() for name, part in self.summary.items()}
        summary["alignment_buffered"] = StatsSummary.of(
            0 for c in checkpoints(self.history) if c.status is CheckpointStatus.COMPLETED
        ).to_json()
        page: dict[str, Any] = {
            "counts": self.counts.to_json(),
            "summary": summary,
            "latest": {kind: one and one.to_json() for kind, one in latest.items()}
            | {"restored": self.latest_restored and asdict(self.latest_restored)},
        }
        if history:
            page["history"] = [checkpoint.to_json() for checkpoint in self.history]
        return page


def checkpoints(history: Iterable[CheckpointStatistics]) -> list[CheckpointStatistics]:
    """Return the history without savepoints."""
    return [one for one in history if not one.is_savepoint]


def checkpointing_statistics(
    counts: CheckpointCounts,
    restored: RestoredCheckpointStatistics | None,
    history: Iterable[CheckpointStatistics],
) -> CheckpointingStatistics:
    """Sum up `history`, newest first. A savepoint is counted; a completed one is the latest of its
    own kind alone."""
    history = tuple(history)

    def latest(
        status: CheckpointStatus, of: Iterable[CheckpointStatistics] = history
    ) -> CheckpointStatistics | None:
        return next((c for c in of if c.status is status), None)

    completed = [c for c in checkpoints(history) if c.status is CheckpointStatus.COMPLETED]
    return CheckpointingStatistics(
        counts=replace(
            counts, in_progress=sum(c.status is CheckpointStatus.IN_PROGRESS for c in history)
        ),
        summary={
            figure: StatsSummary.of(getattr(c, figure) for c in completed) for figure in SUMMARISED
        },
        latest_completed=latest(CheckpointStatus.COMPLETED, checkpoints(history)),
        latest_savepoint=latest(CheckpointStatus.COMPLETED, (c for c in history if c.is_savepoint)),
        latest_failed=latest(CheckpointStatus.FAILED),
        latest_restored=restored,
        history=history,
    )


NONE_YET = checkpointing_statistics(CheckpointCounts(), None, ())
"""The statistics of a job without a checkpoint."""

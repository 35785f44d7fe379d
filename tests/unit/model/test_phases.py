"""How: handwritten statistics of one epoch, as far as it has got."""

from __future__ import annotations

from dataclasses import replace

from seamark.model.checkpoint_statistics import (
    CheckpointStatistics,
    CheckpointStatus,
    SubtaskCheckpointStatistics,
    TaskCheckpointStatistics,
)
from seamark.model.phases import Phases, phases


def sink(uid: str, *written_ms: int) -> TaskCheckpointStatistics:
    parts = [SubtaskCheckpointStatistics(i, sync_duration=ms) for i, ms in enumerate(written_ms)]
    return TaskCheckpointStatistics(uid, "sink", uid, CheckpointStatus.COMPLETED, subtasks=parts)


COMPLETED = CheckpointStatistics(
    1,
    CheckpointStatus.COMPLETED,
    1000,
    end_to_end_duration=180,
    sync_duration=100,
    async_duration=30,
    tasks=(sink("a", 10, 20), sink("b", 15, 2)),
)


def test_the_phases_of_a_completed_checkpoint_add_up() -> None:
    assert phases(COMPLETED) == Phases(75, 25, 50, 30)


def test_what_has_not_come_yet_is_not_known() -> None:
    decided = replace(COMPLETED, async_duration=-1)
    assert phases(decided) == Phases(75, 25, -1, -1)
    assert phases(replace(decided, sync_duration=-1, tasks=())) == Phases(-1, -1, -1, -1)


def test_tasks_whose_clocks_run_fast_take_no_more_than_the_driver_saw() -> None:
    assert phases(replace(COMPLETED, tasks=(sink("a", 500),))) == Phases(0, 100, 50, 30)

"""How: a history as the store gives it is joined with what a driver says of its epochs."""

from __future__ import annotations

from tidemark.dashboard.checkpoint_pages import checkpoints_page, with_those_under_way
from tidemark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from tidemark.model.checkpointing_statistics import CheckpointCounts, checkpointing_statistics

FAILED, COMPLETED = CheckpointStatus.FAILED, CheckpointStatus.COMPLETED
HISTORY = [
    CheckpointStatistics(5, FAILED, 5000),
    CheckpointStatistics(4, COMPLETED, 4000),
    CheckpointStatistics(3, COMPLETED, 3000),
]
FOUND = checkpointing_statistics(CheckpointCounts(completed=2, failed=1), None, HISTORY)


def epoch(number: int, *uncommitted: int) -> dict[str, object]:
    older = [{"id": n, "phase": "COMMIT", "phase-since": 1} for n in uncommitted]
    return {"id": number, "trigger-timestamp": 6000, "uncommitted": older}


def test_epochs_under_way_stand_before_those_that_have_ended() -> None:
    found = with_those_under_way(FOUND, epoch(6, 5))
    assert [(c.id, c.status.value) for c in found.history[:3]] == [
        (6, "IN_PROGRESS"),
        (5, "IN_PROGRESS"),  # it has failed, and runs again
        (5, "FAILED"),
    ]
    assert found.history[0].trigger_timestamp == 6000
    assert found.counts.in_progress == 2
    assert found.latest_completed is FOUND.latest_completed


def test_what_the_storage_has_as_completed_is_no_longer_under_way() -> None:
    assert with_those_under_way(FOUND, epoch(4)).history == FOUND.history
    assert with_those_under_way(FOUND, epoch(-1)).history == FOUND.history


def test_a_page_says_how_many_match_and_how_many_are_older() -> None:
    page = checkpoints_page(FOUND, 1, None, COMPLETED)
    assert [one["id"] for one in page["history"]] == [4]
    assert (page["matching"], page["older"]) == (2, 1)
    page = checkpoints_page(FOUND, 10, 4000, None)
    assert [one["id"] for one in page["history"]] == [3]
    assert page["older"] == 0

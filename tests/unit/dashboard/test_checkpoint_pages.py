"""How: a history from the store is joined with a driver's page of its epochs."""

from __future__ import annotations

from typing import Any

from seamark.dashboard.checkpoint_pages import (
    checkpoints_page,
    epoch_beside,
    with_those_under_way,
)
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.checkpointing_statistics import CheckpointCounts, checkpointing_statistics

FAILED, COMPLETED = CheckpointStatus.FAILED, CheckpointStatus.COMPLETED
HISTORY = [
    CheckpointStatistics(5, FAILED, 5000),
    CheckpointStatistics(4, COMPLETED, 4000),
    CheckpointStatistics(3, COMPLETED, 3000),
]
FOUND = checkpointing_statistics(CheckpointCounts(completed=2, failed=1), None, HISTORY)


def epoch(
    number: int, *uncommitted: int, triggered: int = 6000, unrecorded: tuple[int, ...] = ()
) -> dict[str, Any]:
    older = [{"id": n, "trigger-timestamp": 1000 * n + 500} for n in uncommitted]
    ended = [{"id": n, "trigger-timestamp": 1000 * n} for n in unrecorded]
    return {
        "id": number, "trigger-timestamp": triggered, "uncommitted": older, "unrecorded": ended
    }  # fmt: skip


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


def test_what_the_storage_has_is_no_longer_under_way() -> None:
    for over in (epoch(4, triggered=4000), epoch(-1, triggered=-1), epoch(5, triggered=5000)):
        assert with_those_under_way(FOUND, over).history == FOUND.history
    assert with_those_under_way(FOUND, epoch(-1, triggered=-1, unrecorded=(4, 5))) == FOUND


def test_what_has_ended_and_is_not_stored_yet_is_still_in_progress() -> None:
    found = with_those_under_way(FOUND, epoch(8, 7, triggered=8000, unrecorded=(5, 6)))
    assert [(c.id, c.trigger_timestamp, c.status.value) for c in found.history[:4]] == [
        (8, 8000, "IN_PROGRESS"),
        (7, 7500, "IN_PROGRESS"),
        (6, 6000, "IN_PROGRESS"),
        (5, 5000, "FAILED"),
    ]
    assert found.counts.total == FOUND.counts.total + 3


def test_an_epoch_that_must_not_begin_yet_is_no_checkpoint() -> None:
    assert with_those_under_way(FOUND, epoch(6, triggered=-1)).history == FOUND.history


def test_a_page_says_how_many_match_and_how_many_are_older() -> None:
    page = checkpoints_page(FOUND, 1, None, COMPLETED)
    assert [one["id"] for one in page["history"]] == [4]
    assert (page["matching"], page["older"]) == (2, 1)
    page = checkpoints_page(FOUND, 10, 4000, None)
    assert [one["id"] for one in page["history"]] == [3]
    assert page["older"] == 0


def test_an_epoch_that_has_ended_meanwhile_is_not_under_way_beside_itself() -> None:
    """The driver has answered: 4 is under way and 3 is the last; then 4 was recorded."""
    answered = {**epoch(4, 3, triggered=4000), "phase": "COMMIT", "phase-since": 4100}
    answered["uncommitted"] = [{"id": 3, "trigger-timestamp": 3000}]
    answered["last-completed"] = 2
    shown = epoch_beside(FOUND, answered)
    assert (shown["id"], shown["phase"], shown["last-completed"]) == (-1, "IDLE", 4)
    assert (shown["uncommitted"], shown["trigger-timestamp"]) == ([], -1)
    assert shown["phase-since"] == 4000  # its duration is not known
    page = checkpoints_page(FOUND, 1, None, None, shown)
    assert page["epoch"]["last-completed"] == page["latest"]["completed"]["id"]


def test_an_epoch_that_is_under_way_stays_so() -> None:
    answered = {**epoch(5, 4, triggered=6000), "phase": "PROCESSING", "phase-since": 6000}
    answered["last-completed"] = 5  # not recorded yet, so no figure is of it
    shown = epoch_beside(FOUND, answered)
    assert (shown["id"], shown["phase"], shown["last-completed"]) == (5, "PROCESSING", 4)
    assert [one["id"] for one in shown["uncommitted"]] == [4]

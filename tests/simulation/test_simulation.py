"""The coordinator under schedules: a few seeds of the right one, and every wrong one found.

`make simulate` runs more seeds; `planted_bugs.py` has the wrong coordinators. A bug's seeds count
from 0, so that a change of the coordinator's steps does not make a test miss it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from .machine import Event
from .planted_bugs import BUGS
from .reality import WRITE_AHEAD, Surroundings
from .run import Schedule, play, schedule_of
from .search import explain, search, simulating

QUICK = {
    "call stored epochs settled",
    "commit another generation's transactions",
    "commit a rewrite before its record",
    "create without excluding others",
    "forget a sink",
    "no seal",
}
"""Bugs that show within a few schedules, one of each kind."""
RARE = {
    "believe the first listing of a spool",
    "keep the plans beyond a void decision", "sweep at the end what a successor commits",
    "settle at the end only what the driver knows",
}  # fmt: skip
"""Bugs that show in one of thousands of schedules."""


def _slow(bug: str) -> Any:
    return pytest.param(bug, marks=pytest.mark.full)


@pytest.fixture(autouse=True)
def _simulating() -> Iterator[None]:
    with simulating():
        yield


def test_no_promise_is_broken() -> None:
    found = search(itertools.count(), within_s=10)
    assert found.failed is None, explain(schedule_of(found.failed))
    assert found.runs > 20
    assert {"FencedError", "RecordNotStoredError"} <= found.ends.keys()


@pytest.mark.parametrize("seed", [3, 12, 41])
def test_a_run_is_a_function_of_its_schedule(seed: int) -> None:
    first, second = (play(schedule_of(seed), traced=True) for _ in range(2))
    assert first.trace
    assert first == second


@pytest.mark.parametrize("bug", [*sorted(QUICK), *map(_slow, sorted(BUGS.keys() - QUICK - RARE))])
def test_a_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug].planted():
        found = search(itertools.count(), BUGS[bug].protocol, 400, BUGS[bug].in_world)
    assert found.failed is not None, f"not in {found.runs} schedules"


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", sorted(RARE))
def test_a_rare_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug].planted():
        found = search(itertools.count(), BUGS[bug].protocol, 3000, BUGS[bug].in_world)
    assert found.failed is not None, f"not in {found.runs} schedules"


def test_two_drivers_send_one_epoch_at_the_same_moment() -> None:
    """Found by seed 100304 of the first generator: the second one took a spool file that the first
    one had claimed since for lost, and stopped the job."""
    happened = (
        ("late", 44, 0), ("stop", 397, 0), ("input", 595, 0), ("pause", 645, 27),
        ("refused", 657, 33), ("input", 708, 52), ("slow reply", 767, 20), ("wake", 773, 1),
        ("pause", 832, 51),
    )  # fmt: skip
    world = Surroundings(ways=(WRITE_AHEAD,), max_concurrent=2, uneven=True)
    play(Schedule(world, tuple(Event(at, kind, choice) for kind, at, choice in happened)))


def test_a_driver_sleeps_in_recovery_until_its_successors_have_deleted_the_epoch() -> None:
    """Found by seed 1001085: it said that rows may be missing, instead of that it is fenced."""
    happened = (
        ("input", 12, 39), ("input", 60, 29), ("crash", 66, 8), ("crash", 105, 37),
        ("task", 165, 32), ("input", 209, 39), ("switch", 269, 6), ("crash", 311, 13),
        ("switch", 362, 13), ("pause", 377, 23),
    )  # fmt: skip
    world = Surroundings(
        forgetful=True, at_most_once=True, uneven=True, ways=("two-phase", "upsert", "two-phase")
    )
    events = tuple(Event(at, kind, choice) for kind, at, choice in happened)
    play(Schedule(world, events, survivors=False))


def test_a_driver_sleeps_in_its_commit_until_its_successors_have_deleted_the_epoch() -> None:
    """Found by seed 1006596: it took transactions for lost that a successor had committed."""
    happened = (
        ("input", 33, 0), ("input", 47, 0), ("crash", 84, 0), ("pause at", 89, 30),
        ("pause at", 174, 24), ("start", 183, 0), ("input", 212, 0), ("crash at", 314, 0),
    )  # fmt: skip
    world = Surroundings(uneven=True, spool=True, ways=("two-phase",))
    events = tuple(Event(at, kind, choice) for kind, at, choice in happened)
    play(Schedule(world, events, survivors=False))


def test_a_failing_schedule_is_shrunk_to_what_matters() -> None:
    bug = BUGS["sweep the winners too after a retry"]
    with bug.planted():
        found = search(itertools.count(), bug.protocol, 120, bug.in_world)
        assert found.failed is not None
        whole = schedule_of(found.failed)
        told = explain(whole, bug.protocol)
    assert "LostTransactionError" in told
    events = [line.split("@")[0].strip() for line in told.splitlines() if "@" in line]
    # How few they can be is the seed's affair, and each change of a step makes another seed fail.
    assert "task" in events and len(events) <= len(whole.events) / 2, (whole, told)


def test_at_most_once_a_driver_commits_what_its_successor_is_about_to_abort() -> None:
    """Found by seed 40141: the successor said that something else had committed it, and stopped."""
    happened = (
        ("pause at", 25, 1), ("pause at", 203, 27), ("input", 249, 0), ("wake", 255, 50),
        ("wake", 264, 0), ("pause", 376, 22), ("pause", 451, 14), ("crash", 592, 0),
    )  # fmt: skip
    world = Surroundings(at_most_once=True, uneven=True, ways=("upsert", "two-phase"))
    events = tuple(Event(at, kind, choice) for kind, at, choice in happened)
    play(Schedule(world, events, survivors=False))


def test_a_sleeping_driver_aborts_what_its_successor_takes_for_decided() -> None:
    """Found by seed 478881: the successor said that no record of the decided epoch was there."""
    happened = (
        ("pause at", 147, 23), ("pause", 175, 0), ("input", 197, 0), ("pause", 217, 6),
        ("wake", 237, 3), ("wake", 238, 25), ("crash", 250, 0), ("switch", 260, 0),
        ("crash", 336, 0),
    )  # fmt: skip
    world = Surroundings(tasks=2, spool=True, ways=("two-phase",))
    events = tuple(Event(at, kind, choice) for kind, at, choice in happened)
    play(Schedule(world, events, survivors=False))


def test_a_deletion_of_a_plan_takes_effect_after_the_plan_was_decided() -> None:
    """Found by seed 1021413: the decided epoch has no plan, and every later start stops."""
    happened = (
        ("pause", 7, 25), ("pause", 17, 0), ("pause", 26, 10), ("task", 42, 0), ("wake", 65, 34),
        ("pause at", 143, 23), ("pause", 158, 10), ("reply lost", 215, 0), ("wake", 222, 2),
        ("pause", 233, 0), ("wake", 256, 21), ("crash", 276, 0), ("start", 279, 0),
        ("wake", 329, 2), ("wake", 392, 12),
    )  # fmt: skip
    world = Surroundings(
        tasks=2, restarts=2, min_pause_s=2.0, ways=("upsert", "two-phase", "two-phase")
    )  # fmt: skip
    events = tuple(Event(at, kind, choice) for kind, at, choice in happened)
    play(Schedule(world, events))

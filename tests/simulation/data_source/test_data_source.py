"""``format("seamark")`` under schedules: a few seeds of the right one, and every wrong one found.

`make simulate ARGS=--data-source` runs more seeds; `planted_bugs.py` has the wrong ones. A bug's
seeds count from 0, so that a change of a step does not make a test miss it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from ..machine import Event
from ..reality import SPOOLED, WRITE_AHEAD
from ..run import RIGHT, play
from ..search import Tally, explain, search, simulating
from .planted_bugs import BUGS
from .run import QuerySchedule, schedule_of
from .world import QuerySurroundings

QUICK = {
    "abort nothing at the beginning",
    "decide after the commit",
    "delete the newest decision",
    "forget rows before the commit",
    "mark before the commit",
    "write a replayed batch again",
}
"""Bugs that show within a few schedules."""


def _slow(bug: str) -> Any:
    return pytest.param(bug, marks=pytest.mark.full)


@pytest.fixture(autouse=True)
def _simulating() -> Iterator[None]:
    with simulating():
        yield


def test_no_promise_is_broken() -> None:
    found = search(itertools.count(), within_s=10, of=schedule_of)
    assert found.failed is None, explain(schedule_of(found.failed))
    assert found.runs > 20
    assert {"FencedError", "RecordNotStoredError"} <= found.ends.keys()


@pytest.mark.parametrize("seed", [3, 12, 41])
def test_a_run_is_a_function_of_its_schedule(seed: int) -> None:
    first, second = (play(schedule_of(seed), traced=True) for _ in range(2))
    assert first.trace
    assert first == second


def found_by(bug: str, within_s: float) -> Tally:
    with BUGS[bug].planted():
        return search(itertools.count(), RIGHT, within_s, BUGS[bug].in_world, schedule_of)


@pytest.mark.parametrize("bug", [*sorted(QUICK), *map(_slow, sorted(BUGS.keys() - QUICK))])
def test_a_planted_bug_is_found(bug: str) -> None:
    found = found_by(bug, within_s=400)
    assert found.failed is not None, f"not in {found.runs} schedules"


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_no_promise_is_broken_for_long() -> None:
    found = search(range(1_000_000, 2_000_000), within_s=1800, of=schedule_of)
    assert found.failed is None, explain(schedule_of(found.failed))


def test_a_run_sleeps_before_its_decision_until_its_place_in_the_log_is_deleted() -> None:
    """Found by seed 211: it said that decided rows are lost, and are to be written by hand."""
    happened = (("switch", 54, 0), ("crash", 89, 0), ("pause", 175, 7), ("input", 226, 0))
    world = QuerySurroundings(ways=(WRITE_AHEAD,))
    events = tuple(Event(at, kind, choice) for kind, at, choice in happened)
    play(QuerySchedule(world, events, survivors=False, twins=True))


def test_a_run_sleeps_in_its_commit_until_its_mark_is_deleted() -> None:
    """Found by seed 1646: it said the same."""
    world = QuerySurroundings(ways=(SPOOLED,), spool=True)
    events = (Event(62, "interrupt"), Event(131, "pause", 1))
    play(QuerySchedule(world, events, survivors=False))

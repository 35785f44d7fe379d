"""Each single call of an undisturbed run fails once in each way: the law of
`tests/unit/checkpoint/test_faulty_storage.py`, with Spark, sinks, spools and all threads simulated.

How: a run without events tells the step of every call to the outside. Then the run is played with
one fault at that step, and judged as every schedule is. Old records are deleted, and pages of the
ledger written, after two epochs instead of ten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from seamark.checkpoint import garbage, ledger
from tests.model.world import Violation

from . import threads
from .machine import FAULTS, Event
from .reality import SPOOLED, TWO_PHASE, UPSERT, WRITE_AHEAD, Surroundings
from .run import RIGHT, Schedule, Simulation
from .search import simulating

WORLDS = {
    "one run": Surroundings(ways=(TWO_PHASE, WRITE_AHEAD)),
    "deadlines": Surroundings(ways=(SPOOLED, UPSERT), spool=True, deadlines=True),
    "restarts": Surroundings(ways=(TWO_PHASE,), restarts=2, max_concurrent=2, forgetful=True),
    "at-most-once": Surroundings(ways=(TWO_PHASE, UPSERT), at_most_once=True),
}
INPUTS = (Event(1, "input"), Event(2, "input"), Event(3, "input"), Event(4, "input"))
UPKEEP = re.compile(
    r"delete (epochs|lease|wal|channel-state)|\w+ (ledger|statistics|losses)"
    r"|list (wal|channel-state)"
)
"""Calls that no driver may stop for."""
SLOWEST = 4


@pytest.fixture(autouse=True)
def _simulating() -> Iterator[None]:
    names = {(garbage, "LEAST_RECORDS"): 2, (ledger, "PAGE_EPOCHS"): 2}
    with threads.patched(names), simulating():
        yield


def play(world: str, *faults: Event) -> Simulation:
    events = sorted((*INPUTS, *faults), key=lambda event: event.at)
    simulation = Simulation(Schedule(WORLDS[world], tuple(events)), RIGHT)
    simulation.machine.calls = []
    with threads.on(simulation.machine):
        try:
            simulation.play()
        finally:
            simulation.end()
    return simulation


def failing(world: str, number: int = 1, of: int = 1) -> tuple[int, list[str]]:
    """Let every call fail in every way, or one in `of`; return how many did, and what is wrong."""
    calls = play(world).machine.calls
    assert calls is not None
    first = [call for call in calls if call[0] > len(INPUTS)]
    cases = [(at, name, kind) for at, name in first for kind in kinds(name)][number % of :: of]
    wrong = []
    for at, name, kind in cases:
        try:
            ends = play(world, Event(at, kind, SLOWEST)).outcome.ends
            if UPKEEP.match(name) and ends:
                wrong.append(f"{at} {kind}: {name}: stops a driver: {ends}")
        except Violation as violation:
            wrong.append(f"{at} {kind}: {name}: {violation}")
    return len(cases), wrong


def kinds(name: str) -> tuple[str, ...]:
    """Return the ways in which the call can fail: a read has no effect that may come late."""
    reads = name.startswith(("read", "exists", "list", "size"))
    return ("refused", "slow reply") if reads else FAULTS


@pytest.mark.parametrize("world", WORLDS)
def test_some_calls_fail(world: str) -> None:
    assert failing(world, 3, of=97)[1] == []


@pytest.mark.full
@pytest.mark.parametrize("world", WORLDS)
def test_every_call_fails(world: str) -> None:
    count, wrong = failing(world)
    assert wrong == []
    assert count > 500

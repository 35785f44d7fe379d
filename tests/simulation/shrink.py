"""From a failing schedule to the shortest one that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from .reality import TWO_PHASE
from .run import Schedule

Fails = Callable[[Schedule], bool]
SIMPLER = {
    "tasks": 1, "max_concurrent": 1, "forgetful": False, "first_epoch": 0, "uneven": False,
    "deadlines": False, "restarts": 0, "min_pause_s": 0.0, "timeout_s": 600.0, "apart": False,
    "unnamed": False, "batches": 2,
}  # fmt: skip


def shrink(schedule: Schedule, fails: Fails, within_s: float = 60.0) -> Schedule:
    """Leave out events, then make the world and the events' choices simpler, until nothing more can
    go or the time is up."""
    give_up = time.monotonic() + within_s
    better: Schedule | None = schedule
    while better is not None and time.monotonic() < give_up:
        schedule = better
        better = next(
            (s for s in _candidates(schedule) if time.monotonic() < give_up and fails(s)), None
        )
    return schedule


def _candidates(schedule: Schedule) -> Iterator[Schedule]:
    """Yield schedules that are simpler, those that save most first."""
    events = schedule.events
    size = len(events) // 2
    while size:
        for start in range(0, len(events), size):
            yield replace(schedule, events=events[:start] + events[start + size :])
        size //= 2
    if len(events) == 1:
        yield replace(schedule, events=())
    if schedule.survivors:
        yield replace(schedule, survivors=False)
    if schedule.twins:
        yield replace(schedule, twins=False)
    setup = schedule.setup
    for uid in range(len(setup.ways)):
        if len(setup.ways) > 1:
            ways = setup.ways[:uid] + setup.ways[uid + 1 :]
            yield replace(schedule, setup=replace(setup, ways=ways))
        if setup.ways[uid] != TWO_PHASE:
            ways = (*setup.ways[:uid], TWO_PHASE, *setup.ways[uid + 1 :])
            yield replace(schedule, setup=replace(setup, ways=ways))
    for name, simple in SIMPLER.items():
        if getattr(setup, name, simple) != simple:
            yield replace(schedule, setup=replace(setup, **{name: simple}))
    for n, event in enumerate(events):
        if event.choice:
            simpler = replace(event, choice=event.choice // 2 if event.choice > 1 else 0)
            yield replace(schedule, events=(*events[:n], simpler, *events[n + 1 :]))

"""Looks for a failing schedule among seeds, and tells of it."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.model.driver import Protocol
from tests.model.world import Violation

from . import threads
from .reality import Surroundings
from .run import RIGHT, Schedule, play, schedule_of
from .shrink import shrink

CHUNK = 40
TOLD_STEPS = 60


@dataclass
class Tally:
    """What the runs of some seeds came to; `failed` is the first failing seed."""

    runs: int = 0
    steps: int = 0
    drivers: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    failed: int | None = None
    violation: str = ""

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        self.steps += other.steps
        self.drivers += other.drivers
        self.ends += other.ends
        if other.failed is not None and self.failed is None:
            self.failed, self.violation = other.failed, other.violation


@contextmanager
def simulating() -> Iterator[None]:
    """Install the stand-ins, and silence the coordinator's log."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with threads.installed():
            yield
    finally:
        logging.disable(disabled)


def search(
    seeds: Iterable[int],
    protocol: Protocol = RIGHT,
    within_s: float = 1e9,
    in_world: Callable[[Surroundings], bool] = lambda setup: True,
    of: Callable[[int], Schedule] = schedule_of,
) -> Tally:
    """Run seeds until one fails or the time is up. `simulating` must be in force; `in_world` picks
    the seeds that count, `of` makes their schedules."""
    tally = Tally()
    give_up = time.monotonic() + within_s
    for seed in seeds:
        if time.monotonic() > give_up:
            break
        schedule = of(seed)
        if not in_world(schedule.setup):
            continue
        tally.runs += 1
        try:
            outcome = play(schedule, protocol)
        except Violation as violation:
            tally.failed, tally.violation = seed, str(violation)
            break
        tally.steps += outcome.steps
        tally.drivers += outcome.drivers
        tally.ends.update(outcome.ends)
    return tally


def _begin() -> None:
    gc.freeze()
    gc.set_threshold(100_000)  # a run makes few cycles, and looking for them takes a tenth of it


def _chunk(of: Callable[[int], Schedule], seeds: range) -> Tally:
    with simulating():
        return search(seeds, of=of)


def search_in_processes(
    of: Callable[[int], Schedule], seeds: range, jobs: int, within_s: float
) -> Iterator[Tally]:
    """Yield the tally so far after each few seeds; the last one has failed, or has run all."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    total, give_up = Tally(), time.monotonic() + within_s
    with multiprocessing.Pool(jobs, _begin) as pool:
        for tally in pool.imap_unordered(partial(_chunk, of), chunks):
            total.add(tally)
            yield total
            if total.failed is not None or time.monotonic() > give_up:
                return


def explain(schedule: Schedule, protocol: Protocol = RIGHT, within_s: float = 120.0) -> str:
    """Return the shortest failing schedule that is found, and its last steps."""

    def fails(candidate: Schedule) -> bool:
        try:
            play(candidate, protocol)
        except Violation:
            return True
        return False

    shortest = shrink(schedule, fails, within_s)
    try:
        play(shortest, protocol, traced=True)
    except Violation as violation:
        trace: list[str] = getattr(violation, "trace", [])
        steps = "\n".join(trace[-TOLD_STEPS:])
        return f"{violation}\n\n{shortest}\n\nits last steps:\n{steps}"
    return f"{shortest}\nfails no more: this run is not a function of its schedule"

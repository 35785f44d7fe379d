"""`protocol/batches.py`: every schedule of two runs with one switch between them and back at any
two moments, deaths at each moment, and random schedules of up to four runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seamark.model.errors import LostTransactionError
from seamark.protocol import batches
from seamark.protocol.batches import Decided, Try

from .batches_world import STEPS, Protocol, Run, Violation, World

LOSERS = ("", "early", "late")


def finish(world: World, steps: Protocol) -> None:
    """An undisturbed run comes to rest, and everything must be right; then it is right for good."""
    last = Run(world, "last", steps=steps)
    for _ in range(500):
        if not last.alive:
            break
        last.step()
    assert not last.alive, "it never comes to rest"
    if last.failed is not None:
        raise Violation(f"an undisturbed run stopped: {last.failed!r}")
    world.check_end()


def two_runs(
    first_steps: int,
    second_steps: int,
    dies: bool,
    loser: str,
    steps: Protocol,
    *,
    deletes: bool = False,
    names_apart: bool = True,
) -> int:
    """One run sleeps after some steps, or dies; a second one goes some steps; then the first wakes
    up and goes on to its end, then the second. Return how many steps the first one can take.
    `deletes`: the second is of another query, as all was deleted while the first one slept."""
    world = World(names_apart=names_apart)
    first = Run(world, "first", steps=steps, loser=loser)
    taken = 0
    while first.alive and taken < first_steps:
        first.step()
        taken += 1
    if dies and first.alive:
        first.die()
    if deletes:
        world.delete()
    second = Run(world, "second", steps=steps, loser=loser)
    for _ in range(second_steps):
        if second.alive:
            second.step()
    for run in (first, second):
        while run.alive:
            run.step()
    finish(world, steps)
    return taken


def all_pairs(steps: Protocol) -> Iterator[None]:
    for loser in LOSERS:
        for dies in (False, True):
            for first in range(60):
                for second in range(60):
                    yield None
                    if two_runs(first, second, dies, loser, steps) < first:
                        break
                else:
                    continue
                break


def test_two_runs_with_every_pair_of_moments() -> None:
    assert sum(1 for _ in all_pairs(STEPS)) > 5000


@pytest.mark.parametrize("loser", LOSERS)
def test_a_location_is_deleted_at_every_moment(loser: str) -> None:
    """And another query begins in it, before the old run wakes up."""
    assert with_deletions(STEPS, loser) > 1000


def with_deletions(steps: Protocol, loser: str, *, names_apart: bool = True) -> int:
    played = 0
    for first in range(60):
        for second in range(60):
            played += 1
            two = first, second, False, loser, steps
            if two_runs(*two, deletes=True, names_apart=names_apart) < first:
                return played
    return played


def without_a_look_behind(log: Any, sink: Any, mine: Decided) -> Any:
    log.stands = lambda: True
    return (yield from batches.commit(log, sink, mine))


@pytest.mark.parametrize(
    ("steps", "names_apart"),
    [(STEPS, False), ({**STEPS, "commit": without_a_look_behind}, True)],
    ids=["the same names", "no look"],
)
def test_a_deletion_that_is_not_told_is_found(steps: Protocol, names_apart: bool) -> None:
    with pytest.raises(Violation):
        with_deletions(steps, "", names_apart=names_apart)


def random_schedule(seed: int, steps: Protocol) -> None:
    draw = random.Random(seed)
    world, runs = World(), []
    for _ in range(draw.randrange(200)):
        alive = [run for run in runs if run.alive and not run.asleep]
        choice = draw.random()
        if not alive or (choice < 0.06 and len(runs) < 4):
            if len(runs) == 4:
                break
            runs.append(Run(world, f"r{len(runs)}", steps=steps, loser=draw.choice(LOSERS)))
            continue
        run = draw.choice(alive)
        if choice < 0.062:
            world.delete()
        elif choice < 0.08:
            run.die()
        elif choice < 0.12:
            run.asleep = True
        elif choice < 0.2 and (sleeping := [r for r in runs if r.alive and r.asleep]):
            draw.choice(sleeping).asleep = False
        else:
            for _ in range(draw.choice((1, 1, 3, 10))):
                if run.alive:
                    run.step()
    for run in runs:
        if run.alive and not run.asleep:
            run.die()
    finish(world, steps)
    for run in runs:  # sleepers wake up after all is done
        while run.alive:
            run.step()
    world.check_end()


def test_random_schedules_of_four_runs() -> None:
    for seed in range(4000):
        try:
            random_schedule(seed, STEPS)
        except Violation as violation:
            raise Violation(f"seed {seed}: {violation}") from violation


def test_nothing_stays_open_behind_a_new_run() -> None:
    """Before a new driver's first task has a row, nothing of older ones is open: nobody waits for
    the dead."""
    for moment in range(1, 40):
        for loser in LOSERS:
            world = World()
            first = Run(world, "first", loser=loser)
            for _ in range(moment):
                if first.alive:
                    first.step()
            if first.alive:
                first.die()
            before = set(map(id, world.transactions))
            second = Run(world, "second")
            while second.alive and {id(t) for t in world.transactions} <= before:
                second.step()
            left = [t for t in world.transactions if t.state == "open" and id(t) in before]
            if not first.alive and first.failed is None and world.place.commits >= {0, 1}:
                continue  # it has ended well: a late loser of its last batch waits for its sweep
            assert not left, (moment, loser, left)


# --- planted bugs: each must be found


def without_a_fence(log: Any, sink: Any, mine: Decided) -> Any:
    yield batches.BatchPoint.CALLED
    entries = log.entries()
    decided = batches.newest_decision(entries)
    if decided is None or decided.batch < mine.batch:
        while not log.append(max(log.entries()) + 1, mine):
            pass
        decided = mine
    sink.commit(decided)


def abort_before_the_beginning(log: Any, sink: Any, previous: int) -> Any:
    entries = log.entries()
    number = max(entries, default=0) + 1
    sink.abort(sink.lingering(number))
    decided = batches.newest_decision(entries)
    while not log.append(number, batches.Begun(number)):
        number += 1
    yield batches.BatchPoint.BEGUN
    if decided is not None:
        sink.commit(decided)
    return Try(number, number, decided)


def abort_before_the_commit(log: Any, sink: Any, previous: int) -> Any:
    number = max(log.entries(), default=0) + 1
    while not log.append(number, batches.Begun(number)):
        number += 1
    yield batches.BatchPoint.BEGUN
    sink.abort(sink.lingering(number))
    decided = batches.newest_decision(log.entries())
    if decided is not None:
        sink.commit(decided)
    return Try(number, number, decided)


def sweep_without_a_look(log: Any, sink: Any, mine: Decided) -> Any:
    left = sink.lingering(mine.generation + 5)
    yield batches.BatchPoint.SWEPT
    sink.abort(left)


def ask_again(log: Any, sink: Any, mine: Decided) -> Any:
    yield batches.BatchPoint.CALLED
    entries = log.entries()
    batches.check_fence(entries, mine.attempt)
    decided = batches.newest_decision(entries)
    number = max(entries)
    if decided is None or decided.batch < mine.batch:
        number, decided = number + 1, mine
        log.append(number, mine)
    sink.commit(decided)
    log.mark_committed(number)
    sink.forget(decided)


def mark_before_the_commit(log: Any, sink: Any, mine: Decided) -> Any:
    yield batches.BatchPoint.CALLED
    entries = log.entries()
    batches.check_fence(entries, mine.attempt)
    number = max(entries) + 1
    if log.append(number, mine):
        log.mark_committed(number)
        sink.commit(mine)


def commit_its_own(log: Any, sink: Any, mine: Decided) -> Any:
    sink.commit(mine)
    yield from batches.commit(log, sink, mine)


@pytest.mark.parametrize(
    "planted",
    [
        {"commit": without_a_fence},
        {"begin": abort_before_the_beginning},
        {"begin": abort_before_the_commit},
        {"sweep": sweep_without_a_look},
        {"commit": commit_its_own},
        {"commit": ask_again},
        {"commit": mark_before_the_commit},
    ],
    ids=lambda planted: next(iter(planted.values())).__name__,
)
def test_a_planted_bug_is_found(planted: dict[str, Callable[..., Any]]) -> None:
    steps = {**STEPS, **planted}
    with pytest.raises((Violation, LostTransactionError)):
        for _ in all_pairs(steps):
            pass
        for seed in range(4000):
            random_schedule(seed, steps)

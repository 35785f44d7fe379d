"""Every step of one driver times every step of the next: crashes in pairs, and the zombie.

How: drivers are stepped one at a time on a small world (two sinks, one epoch of input, and more in
the finale). A driver can be stopped before each of its calls to records, Spark's logs or sinks, and
before each transaction within a call, so between any two points of the protocol. The `void` start
is a world left by two drivers with a decision, and a plan, to be taken back. The chaos tests add
pairs on the void start, another order of threads, and three drivers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from seamark.protocol.points import Point

from .driver import Driver, Protocol
from .planted_bugs import (
    PLANTED_ABORTS,
    PLANTED_ACCEPTANCE,
    PLANTED_SUPERSEDING,
    PLANTED_WRITE_AGAIN,
    RIGHT,
)
from .scheduler import MAX_STEPS, Run
from .world import ROWS_PER_EPOCH, Setup, Violation

SETUP = Setup(sinks=2, tasks=1)


class Coverage:
    """The facts seen by a test; printed with `pytest -s`."""

    def __init__(self) -> None:
        self.histories: set[int] = set()
        self.crashed_at: set[Point] = set()
        self.paused_at: set[Point] = set()

    def add(self, run: Run) -> None:
        self.histories.add(hash(tuple(run.history)))
        self.crashed_at |= run.crashed_at
        self.paused_at |= run.paused_at

    def __str__(self) -> str:
        return (
            f"{len(self.histories)} distinct histories; crashed at {len(self.crashed_at)} and "
            f"paused at {len(self.paused_at)} of {len(Point)} points"
        )


def clean_start(setup: Setup = SETUP) -> Run:
    run = Run(setup)
    run.world.available = ROWS_PER_EPOCH
    return run


def void_start() -> Run:
    """Driver 0 decides epoch 0 after driver 1 has recovered; driver 1's Spark then starts at epoch
    1."""
    run = clean_start()
    old = run.start()
    assert run.advance_to(old, Point.PREPARED)
    run.pause(old)
    new = run.start()
    assert run.advance_to(new, Point.RECOVERED)
    run.wake(old)
    run.advance(old, 1, prefer="stream")
    run.crash(old)
    run.world.available += ROWS_PER_EPOCH
    run.advance(new, MAX_STEPS)
    assert new.finished and run.world.commits == {0} and run.world.offsets.keys() == {0, 1}
    return run


def moments(begin: Callable[[], Run], life: Callable[[Run, int], bool]) -> Iterator[Run]:
    """Yield a history for each step count, from 0 to where the driver has come to rest."""
    for steps in range(MAX_STEPS):
        run = begin()
        more = life(run, steps)
        yield run
        if not more:
            return


def crashing(prefer: str = "commit") -> Callable[[Run, int], bool]:
    def life(run: Run, steps: int) -> bool:
        driver = run.start()
        taken = run.advance(driver, steps, prefer=prefer)
        run.crash(driver)
        return taken == steps

    return life


def sleeping(prefer: str = "commit") -> Callable[[Run, int], bool]:
    def life(run: Run, steps: int) -> bool:
        driver = run.start()
        taken = run.advance(driver, steps, prefer=prefer)
        run.pause(driver)
        return taken == steps

    return life


def nested(
    begin: Callable[[], Run],
    outer: Callable[[Run, int], bool],
    inner: Callable[[Run, int], bool],
) -> Iterator[Run]:
    """Yield a history for every pair of steps of two drivers, one after the other."""
    for first in range(MAX_STEPS):
        more = True

        def begin_again(first: int = first) -> Run:
            nonlocal more
            run = begin()
            more = outer(run, first)
            return run

        yield from moments(begin_again, inner)
        if not more:
            return


def wake_in_turn(run: Run) -> None:
    """Let all sleeping drivers wake up and run to their end, the oldest first."""
    for driver in run.drivers:
        if driver.alive:
            run.wake(driver)
            run.advance(driver, MAX_STEPS)


def test_a_crash_at_every_step_and_its_successor_crashed_at_every_step() -> None:
    seen = Coverage()
    for run in nested(clean_start, crashing(), crashing()):
        run.finale()
        seen.add(run)
    for run in moments(void_start, crashing()):
        run.finale()
        seen.add(run)
    print(seen)
    assert seen.crashed_at == set(Point) - {Point.SUPERSEDED}


def test_a_driver_asleep_at_every_step_wakes_at_every_step_of_its_successor() -> None:
    seen = Coverage()
    for run in nested(clean_start, sleeping(), sleeping()):
        wake_in_turn(run)
        run.finale()
        seen.add(run)
    for run in moments(void_start, sleeping()):
        run.finale()  # a further driver takes over and finishes while this one sleeps
        seen.add(run)
    print(seen)
    assert seen.paused_at == set(Point) - {Point.SUPERSEDED}


def left_start(protocol: Protocol = RIGHT) -> Run:
    """Driver 0 has decided epoch 0 and died, uncommitted; driver 1 sleeps with epoch 1 stored."""
    run = Run(SETUP, protocol)
    run.world.available = ROWS_PER_EPOCH
    first = run.start()
    assert run.advance_to(first, Point.DECIDED)
    run.crash(first)
    run.world.available += ROWS_PER_EPOCH
    second = run.start()
    assert run.advance_to(second, Point.RECOVERED)
    assert run.advance_to(second, Point.PREPARED)
    run.pause(second)
    return run


def restoring(end: Callable[[Run, Driver], None]) -> Callable[[Run, int], bool]:
    """A restore under the job's name, which falls asleep or dies after some steps."""

    def life(run: Run, steps: int) -> bool:
        restorer = run.restore()
        taken = run.advance(restorer, steps)
        end(run, restorer)
        return taken == steps

    return life


def superseding(protocol: Protocol) -> Iterator[Run]:
    """A restore at every step, beside a start, another restore, and a successor, at every step."""
    begin = partial(left_start, protocol)
    for first, second in [
        (restoring(Run.pause), restoring(Run.pause)),
        (restoring(Run.pause), sleeping()),
        (sleeping(), restoring(Run.pause)),
    ]:
        for run in nested(begin, first, second):
            wake_in_turn(run)
            run.finale()
            yield run


def test_a_restore_supersedes_beside_everybody_at_every_step() -> None:
    seen, superseded = Coverage(), 0
    for run in superseding(RIGHT):
        seen.add(run)
        superseded += bool(run.world.before)
    print(seen, superseded)
    assert {Point.GENERATION_CLAIMED, Point.RECOVERED, Point.SUPERSEDED} <= seen.paused_at
    assert superseded > 100


def late_restore(protocol: Protocol) -> Run:
    """A restore sleeps after it has settled; two drivers take the job over, and the second deletes
    the first one's lease: the generation that the restore has in mind for the last one is free."""
    run = left_start(protocol)
    restorer = run.restore()
    assert run.advance_to(restorer, Point.RECOVERED)
    run.pause(restorer)
    second = run.start()
    assert run.advance_to(second, Point.GENERATION_CLAIMED)
    run.crash(second)
    third = run.start()
    run.advance(third, MAX_STEPS)
    assert run.world.leases == {third.generation} or protocol is not RIGHT
    run.wake(restorer)
    run.advance(restorer, MAX_STEPS)
    return run


def test_a_lease_that_is_free_again_ends_no_lineage() -> None:
    run = late_restore(RIGHT)
    assert not run.world.before, "superseded beside a driver that lives"
    run.finale()


@pytest.mark.parametrize("bug", PLANTED_SUPERSEDING)
def test_a_planted_bug_of_a_restore_is_found(bug: str) -> None:
    with pytest.raises(Violation):
        late_restore(PLANTED_SUPERSEDING[bug]).finale()
        for _ in superseding(PLANTED_SUPERSEDING[bug]):
            pass


def lost_start(protocol: Protocol = RIGHT) -> Run:
    """Driver 0 has decided epoch 0 and died; its transaction has timed out."""
    run = Run(Setup(sinks=1, tasks=1, spool=True), protocol)
    run.world.available = ROWS_PER_EPOCH
    first = run.start()
    assert run.advance_to(first, Point.DECIDED)
    run.crash(first)
    assert run.world.expire(0)
    return run


def sweeping(run: Run, steps: int) -> bool:
    """An operator who aborts what no driver can decide, and falls asleep after some steps."""
    operator = run.abort_lingering()
    taken = run.advance(operator, steps)
    run.pause(operator)
    return taken == steps


def beside_an_abort(protocol: Protocol) -> Iterator[Run]:
    """The operator at every step of a driver that sleeps; and a driver at every step of his."""

    def begin() -> Run:
        run = Run(SETUP, protocol)
        run.world.available = ROWS_PER_EPOCH
        return run

    yield from nested(begin, sleeping(), sweeping)
    yield from nested(begin, sweeping, sleeping())


def test_an_operator_aborts_beside_a_driver_at_every_step() -> None:
    for run in beside_an_abort(RIGHT):
        wake_in_turn(run)
        run.finale()


@pytest.mark.parametrize("bug", PLANTED_ABORTS)
def test_a_planted_bug_of_an_operators_abort_is_found(bug: str) -> None:
    with pytest.raises(Violation):
        for run in beside_an_abort(PLANTED_ABORTS[bug]):
            wake_in_turn(run)
            run.finale()


def loss_start(
    expires: bool = True, spool: bool = False, protocol: Protocol = RIGHT
) -> Callable[[], Run]:
    """Driver 0 has decided epoch 0 and died; its transaction in the first sink may be lost."""

    def begin() -> Run:
        run = Run(Setup(sinks=1 if spool else 2, losses=True, spool=spool), protocol)
        run.world.available = ROWS_PER_EPOCH
        first = run.start()
        assert run.advance_to(first, Point.DECIDED)
        run.crash(first)
        if expires:
            assert run.world.expire(0)
        return run

    return begin


def accepting(end: Callable[[Run, Driver], None]) -> Callable[[Run, int], bool]:
    """An operator who accepts losses, and falls asleep or dies after some steps."""

    def life(run: Run, steps: int) -> bool:
        operator = run.accept_losses()
        taken = run.advance(operator, steps)
        end(run, operator)
        return taken == steps

    return life


asleep, dead = accepting(Run.pause), accepting(Run.crash)


@pytest.mark.parametrize("expires", [True, False])
@pytest.mark.parametrize("first", ["driver", "operator"])
def test_an_operator_asleep_at_every_step_beside_a_driver_at_every_step(
    first: str, expires: bool
) -> None:
    """Both wake then, the first one first, and a further driver must bring all that is not lost."""
    accepted = set()
    lives = (sleeping(), asleep) if first == "driver" else (asleep, sleeping())
    for run in nested(loss_start(expires), *lives):
        wake_in_turn(run)
        run.finale()
        accepted |= set(run.world.accepted)
    assert accepted == ({(0, 1, "alpha")} if expires else set())


def test_an_operator_who_dies_at_every_step_and_another_who_dies_at_every_step() -> None:
    for run in nested(loss_start(), dead, dead):
        run.finale()
        assert run.world.accepted.keys() == {(0, 1, "alpha")}


def damaged_between(begin: Callable[[], Run]) -> Iterator[Run]:
    """At every step of a driver that writes lost rows again the spool is deleted; it falls asleep,
    and an operator falls asleep at every step of his."""

    def life(run: Run, steps: int) -> bool:
        more = sleeping()(run, steps)
        run.world.damaged = True
        return more

    return nested(begin, life, asleep)


def test_a_loss_is_accepted_beside_a_driver_that_is_writing_it_again() -> None:
    accepted = 0
    for run in damaged_between(loss_start(spool=True)):
        wake_in_turn(run)
        run.finale()
        accepted += bool(run.world.accepted)
    assert accepted > 5


@pytest.mark.parametrize("bug", PLANTED_ACCEPTANCE)
def test_a_planted_bug_of_accepting_is_found(bug: str) -> None:
    protocol = PLANTED_ACCEPTANCE[bug]
    with pytest.raises(Violation, match=r"accepted, and it is visible|given up and visible"):
        for runs in (
            nested(loss_start(False, protocol=protocol), sleeping(), asleep),
            damaged_between(loss_start(spool=True, protocol=protocol)),
        ):
            for run in runs:
                wake_in_turn(run)
                run.finale()


@pytest.mark.parametrize("life", [crashing, sleeping])
def test_a_lost_transaction_at_every_step_of_two_drivers(life: Callable[[], Any]) -> None:
    lengths = set()
    for run in nested(lost_start, life(), life()):
        wake_in_turn(run)
        run.finale()
        lengths |= {len(chain) for chain in run.world.chains.values()}
    assert lengths == {1}


@pytest.mark.parametrize("bug", PLANTED_WRITE_AGAIN)
def test_a_planted_bug_of_writing_again_is_found(bug: str) -> None:
    with pytest.raises(Violation, match=r"visible twice|without a record"):
        for life in (crashing(), sleeping()):
            for run in nested(partial(lost_start, PLANTED_WRITE_AGAIN[bug]), life, life):
                wake_in_turn(run)
                run.finale()


@pytest.mark.parametrize("life", [crashing, sleeping])
def test_at_most_once_at_every_step_of_two_drivers(life: Callable[[], Any]) -> None:
    lost = 0
    begin = partial(clean_start, Setup(sinks=2, tasks=1, at_most_once=True))
    for run in nested(begin, life(), life()):
        wake_in_turn(run)
        run.finale()
        lost += any(set(range(run.world.available)) - rows for rows in run.world.visible.values())
    assert lost, "nothing was ever lost, so no epoch was ever skipped"


def test_a_crash_at_every_step_of_the_end_of_a_run() -> None:
    def ending(run: Run, steps: int) -> bool:
        driver = run.start()
        run.advance_to(driver, Point.PREPARED)
        driver.stop()
        taken = run.advance(driver, steps, prefer="finish")
        run.crash(driver)
        return taken == steps

    for run in nested(clean_start, sleeping(), ending):
        wake_in_turn(run)
        run.finale()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("order", ["commit", "stream"])
@pytest.mark.parametrize("begin", [clean_start, void_start])
def test_pairs_from_every_start_in_both_orders(begin: Callable[[], Run], order: str) -> None:
    for first, second in [
        (crashing(order), crashing(order)),
        (sleeping(order), sleeping(order)),
        (sleeping(order), crashing(order)),
        (crashing(order), sleeping(order)),
    ]:
        for run in nested(begin, first, second):
            wake_in_turn(run)
            run.finale()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_three_drivers_asleep() -> None:
    """Every step of the first two; the third runs to its end before they wake, oldest first."""
    for run in nested(clean_start, sleeping("stream"), sleeping()):
        third = run.start()
        run.advance(third, MAX_STEPS)
        wake_in_turn(run)
        run.finale()

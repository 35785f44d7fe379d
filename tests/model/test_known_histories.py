"""Histories by hand: bugs found by the checker, each with its version; and the stops allowed by the
protocol.

How: drivers on one world of `world.py` are stepped to exactly the decisive moment, then left to
run; the finale judges. Each bug's history must pass now, and must fail on the first version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from seamark.model.errors import CommitFailedError, DecisionMissingError
from seamark.protocol.points import Point

from .driver import Driver, Protocol
from .planted_bugs import (
    ACCEPT_UNCONFIRMED,
    CLAIM_UNFENCED,
    FIRST_VERSIONS,
    LEAVE_DELETED_PLANS,
    RIGHT,
    UNPROVED,
)
from .replay import Call
from .scheduler import MAX_STEPS, Run
from .world import ROWS_PER_EPOCH, Setup, Violation, World


def until(run: Run, driver: Driver, point: Point, *, prefer: str = "commit") -> None:
    assert run.advance_to(driver, point, prefer=prefer), f"{driver.name} never reached {point}"


def until_called(run: Run, driver: Driver, call: str, nth: int = 1) -> None:
    """Step `driver` until it has just made a call for the `nth` time, counted from now."""
    before = driver.calls.count(call)
    while driver.calls.count(call) < before + nth:
        assert run.advance(driver, 1, prefer="finish"), f"{driver.name} never called {call}"


def decide_and_die(run: Run, driver: Driver) -> None:
    """Wake a driver asleep with a stored epoch: its Spark writes the decision."""
    run.wake(driver)
    run.advance(driver, 1, prefer="stream")
    assert driver.entered in run.world.commits
    run.crash(driver)


def plan_beyond_a_void_decision(protocol: Protocol) -> Run:
    """Driver 1's Spark starts where a void decision stands, and plans the epoch after it."""
    run = Run(Setup(), protocol)
    old = run.start()
    until(run, old, Point.PREPARED)
    run.pause(old)
    new = run.start()
    until(run, new, Point.RECOVERED)
    decide_and_die(run, old)
    run.advance(new, MAX_STEPS)
    assert run.world.offsets.keys() == {0, 1}
    return run


def stop_while_another_decides(protocol: Protocol) -> Run:
    """The end of a run seals ABORT, finds COMMIT, and must then commit before it sweeps."""
    run = Run(Setup(), protocol)
    old = run.start()
    until(run, old, Point.PREPARED)
    run.pause(old)
    stopping = run.start()
    until(run, stopping, Point.PREPARED)
    stopping.stop()
    until_called(run, stopping, "latest_decision")
    run.pause(stopping)
    decide_and_die(run, old)
    recovering = run.start()
    until(run, recovering, Point.SINK_COMMITTED)
    run.pause(recovering)
    run.wake(stopping)
    run.advance(stopping, MAX_STEPS, prefer="finish")
    run.wake(recovering)
    run.advance(recovering, MAX_STEPS)
    return run


def attempt_stored_unknown_to_its_driver(protocol: Protocol, reply: str) -> Run:
    """The reply to write_prepared is lost, or the write itself is late: the driver ends."""
    run = Run(Setup(), protocol)
    old = run.start()
    until(run, old, Point.PREPARED)
    run.pause(old)
    unsure = run.start()
    until(run, unsure, Point.FENCE_CHECKED)
    unsure.reply = reply
    run.advance(unsure, MAX_STEPS)
    assert unsure.finished and unsure.stopped_by is not None
    if reply == "late":
        run.world.land_late_call()
    decide_and_die(run, old)
    return run


def commit_ended_by_another(protocol: Protocol, *, spool: bool = False) -> Run:
    """Driver 1 sleeps before it commits epoch 0; driver 0 commits it and uses its ids again."""
    run = Run(Setup(forgetful=True, spool=spool), protocol)
    old = run.start()
    until(run, old, Point.DECIDED)
    run.pause(old)
    new = run.start()
    until(run, new, Point.SEALED)
    run.pause(new)
    run.wake(old)
    until(run, old, Point.COMMITTED)
    until(run, old, Point.PRE_COMMITTED)
    assert {t.id for t in run.world.sinks["alpha"].transactions} == {"alpha-d0-1-0"}
    run.wake(new)
    run.advance(new, MAX_STEPS)
    return run


BUGS: dict[str, tuple[Callable[[Protocol], Run], str]] = {
    "plan": (plan_beyond_a_void_decision, "keep the plans beyond a void decision"),
    "stop": (stop_while_another_decides, "sweep at the end what a successor commits"),
    "lost reply": (
        lambda protocol: attempt_stored_unknown_to_its_driver(protocol, "lost"),
        "settle at the end only what the driver knows",
    ),
    "late write": (
        lambda protocol: attempt_stored_unknown_to_its_driver(protocol, "late"),
        "sweep at the end what a successor commits",
    ),
    "forgotten": (commit_ended_by_another, "believe a sink that has forgotten"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_that_was_found_is_mended(bug: str) -> None:
    history, _ = BUGS[bug]
    history(RIGHT).finale()


@pytest.mark.parametrize("bug", BUGS)
def test_its_history_fails_on_the_first_version(bug: str) -> None:
    history, version = BUGS[bug]
    with pytest.raises(Violation, match=r"LostTransactionError|DecisionVoidError"):
        history(FIRST_VERSIONS[version]).finale()


def test_a_commit_that_cannot_be_proved_any_more_counts_when_it_is_recorded() -> None:
    """As Kafka's committer does: it asks again until the deadline, and then gives up."""

    def give_up(world: World, call: Call) -> Callable[[], None] | None:
        if call.name != "commit":
            return None
        sink = world.sinks[call.args[0]]
        if not any(sink.unknown(t) for t in world.committables(*call.args)):
            return None

        def fail() -> None:
            raise CommitFailedError(f"{call}: not proved within the deadline")

        return fail

    run = commit_ended_by_another(replace(RIGHT, execute=give_up))
    assert not any(isinstance(d.stopped_by, CommitFailedError) for d in run.drivers)
    run.finale()


def test_rows_are_written_again_only_when_their_loss_is_proved() -> None:
    commit_ended_by_another(RIGHT, spool=True).finale()
    with pytest.raises(Violation, match="visible twice"):
        commit_ended_by_another(UNPROVED, spool=True).finale()


def test_a_transaction_that_timed_out_is_written_again_and_its_rewrite_too() -> None:
    run = Run(Setup(sinks=1, spool=True))
    first = run.start()
    until(run, first, Point.DECIDED)
    run.crash(first)
    run.world.expire(0)
    second = run.start()
    while not run.world.chains.get(run.world.sinks["alpha"].transactions[0]):
        run.advance(second, 1)
    run.crash(second)
    [rewrite] = run.world.sinks["alpha"].open()
    run.world.expire(0)
    run.finale()
    [lost] = run.world.chains
    assert [t.state for t in run.world.chains[lost]] == ["aborted", "committed"]
    assert run.world.chains[lost][0] is rewrite


def accept_what_another_commits(protocol: Protocol) -> Run:
    """The operator sees epoch 0 uncommitted; a driver commits it and uses its ids again."""
    run = Run(Setup(forgetful=True, losses=True), protocol)
    old = run.start()
    until(run, old, Point.DECIDED)
    run.pause(old)
    operator = run.accept_losses()
    until_called(run, operator, "seal")
    run.pause(operator)
    run.wake(old)
    until(run, old, Point.COMMITTED)
    until(run, old, Point.PRE_COMMITTED)
    run.wake(operator)
    run.advance(operator, MAX_STEPS)
    return run


def test_no_loss_is_accepted_of_what_another_driver_has_committed() -> None:
    run = accept_what_another_commits(RIGHT)
    run.finale()
    assert not run.world.accepted
    with pytest.raises(Violation, match="given up and visible"):
        accept_what_another_commits(ACCEPT_UNCONFIRMED).finale()


# --- the allowed stops


def late_void(run: Run) -> Driver:
    """Make a driver sleep between its check of the fence and void_decision; return it."""
    sleeper = run.start()
    until_called(run, sleeper, "generations", nth=3)  # take over, recover, check_fence
    run.pause(sleeper)
    assert run.world.commits == {0}
    return sleeper


def test_a_good_decision_taken_back_by_a_late_driver_is_put_back() -> None:
    """Once a window in which a job stopped."""
    run = plan_beyond_a_void_decision(RIGHT)
    sleeper = late_void(run)
    good = run.start()
    until(run, good, Point.RECOVERED)
    until(run, good, Point.COMMITTED)
    run.crash(good)
    seen = {uid: set(rows) for uid, rows in run.world.visible.items()}
    assert all(rows == set(range(ROWS_PER_EPOCH)) for rows in seen.values())
    run.wake(sleeper)
    until_called(run, sleeper, "void_decision")
    run.crash(sleeper)
    assert run.world.commits == set()  # taken back too late
    next_ = run.start()
    until(run, next_, Point.RECOVERED)
    assert run.world.commits == {0}
    assert run.world.visible == seen
    run.finale()


def test_a_late_driver_cannot_take_back_what_a_later_decision_covers() -> None:
    run = plan_beyond_a_void_decision(RIGHT)
    sleeper = late_void(run)
    good = run.start()
    run.advance(good, MAX_STEPS)
    assert run.world.commits == {0, 1}
    run.wake(sleeper)
    run.advance(sleeper, MAX_STEPS)
    assert run.world.commits == {1}
    run.finale()
    assert not any(isinstance(d.stopped_by, DecisionMissingError) for d in run.drivers)


def test_a_decision_that_no_seal_holds_stops_the_job_before_anything_is_written() -> None:
    run = Run(Setup())
    first = run.start()
    until(run, first, Point.COMMITTED)
    run.crash(first)
    run.world.commits.remove(0)
    run.world.unkept.add(0)  # it was gone when the attempt was sealed
    begun = len(run.world.sinks["alpha"].transactions)
    stopped = run.start()
    run.advance(stopped, MAX_STEPS)
    assert isinstance(stopped.stopped_by, DecisionMissingError)
    assert len(run.world.sinks["alpha"].transactions) == begun
    run.finale()  # puts the file back, as the error says, and every row is there once


def test_a_transaction_that_timed_out_stops_every_driver_and_spares_the_other_sinks() -> None:
    run = Run(Setup())
    first = run.start()
    until(run, first, Point.DECIDED)
    run.crash(first)
    [lost] = run.world.sinks["alpha"].transactions
    lost.state = "aborted"  # as a broker does after transaction.timeout.ms
    for _ in range(2):
        with pytest.raises(Violation, match="LostTransactionError"):
            run.advance(run.start(), MAX_STEPS)
    assert run.world.visible["alpha"] == set()
    assert run.world.visible["beta"] == set(range(ROWS_PER_EPOCH))
    assert run.world.confirmed == {}


# --- at-most-once


def void_decision_then_on(protocol: Protocol) -> Run:
    """`old` decides epoch 0 though `new` has fenced it, and goes on to epoch 1. The finale's driver
    takes the decision back and plans epoch 1 anew, with fewer rows: its generation is odd."""
    run = Run(Setup(at_most_once=True, uneven=True, max_concurrent=2), protocol)
    run.world.available = 3 * ROWS_PER_EPOCH
    pass_a_generation(run)
    old = run.start()
    until(run, old, Point.PREPARED)
    run.pause(old)
    new = run.start()
    until(run, new, Point.RECOVERED)
    run.wake(old)
    while run.runnable(old) and old.last_stored < 1:
        run.advance(old, 1, prefer="stream")
    run.crash(old)
    run.crash(new)
    pass_a_generation(run)
    return run


def pass_a_generation(run: Run) -> None:
    driver = run.start()
    until(run, driver, Point.GENERATION_CLAIMED)
    run.crash(driver)


def test_at_most_once_needs_a_look_at_the_fence_before_the_claim() -> None:
    void_decision_then_on(RIGHT).finale()
    with pytest.raises(Violation, match="visible twice"):
        void_decision_then_on(CLAIM_UNFENCED).finale()


def asleep_before_it_takes_back_a_plan(run: Run) -> Driver:
    """Return a driver whose next call is void_offsets(1); it looked at the leases just before."""
    run.world.available = 3 * ROWS_PER_EPOCH
    old = run.start()
    until(run, old, Point.PREPARED)
    run.pause(old)
    new = run.start()
    until(run, new, Point.RECOVERED)
    decide_and_die(run, old)
    run.advance(new, MAX_STEPS)
    sleeper = run.start()
    until_called(run, sleeper, "generations", nth=4)
    run.pause(sleeper)
    return sleeper


def test_at_most_once_goes_by_the_plan_that_was_claimed() -> None:
    """Once a window. Two drivers sleep at the wrong moment: one in its recovery, before it takes
    back a plan, and one between its look at the fence and its claim of the same epoch; and the
    epoch is planned anew with fewer rows. The claim has the plan, so the last one stops."""
    run = Run(Setup(at_most_once=True, uneven=True))
    recovering = asleep_before_it_takes_back_a_plan(run)
    claiming = run.start()
    until(run, claiming, Point.RECOVERED)
    while claiming.entered < 1:
        run.advance(claiming, 1, prefer="stream")
    until_called(run, claiming, "generations")
    run.pause(claiming)
    run.wake(recovering)
    until_called(run, recovering, "void_offsets")
    run.crash(recovering)
    assert 1 not in run.world.offsets and 1 not in run.world.claims
    last = run.start()
    while 1 not in run.world.offsets:
        run.advance(last, 1, prefer="stream")
    run.wake(claiming)
    run.advance(claiming, MAX_STEPS)
    run.finale()


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_plan_deleted_after_its_decision_is_put_back(at_most_once: bool) -> None:
    """Once a window in which a job stopped: a driver is frozen in its recovery in the call that
    deletes a fenced driver's plan; its successors decide that epoch; the deletion takes effect."""
    run = late_deletion(RIGHT, at_most_once=at_most_once)
    run.finale()
    assert run.world.offsets[1] == run.world.plans[1, run.world.confirmed[1]]


def test_the_plan_of_a_decided_epoch_must_be_put_back() -> None:
    with pytest.raises(Violation, match="Spark starts epoch 0, but epoch 2 was decided"):
        late_deletion(LEAVE_DELETED_PLANS).finale()


def late_deletion(protocol: Protocol, *, at_most_once: bool = False) -> Run:
    """The newest decided epoch, 1, has no plan, and nobody is awake."""
    run = Run(Setup(at_most_once=at_most_once), protocol)
    deleting = asleep_before_it_takes_back_a_plan(run)
    successor = run.start()
    while 1 not in run.world.confirmed:
        run.advance(successor, 1)
    run.crash(successor)
    run.wake(deleting)
    until_called(run, deleting, "void_offsets")
    run.crash(deleting)
    assert 1 not in run.world.offsets
    return run

"""How: records as a dead driver leaves them, on a real directory, and a sink in memory.

`tests/integration/jobs/test_transactions.py` does the same on real systems, with real drivers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamark.checkpoint.accepted_losses import read_losses
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.transactions import JobTransactions, stored_parts
from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import LossRefusedError, LostTransactionError, UserError
from seamark.protocol.accept_loss import Acceptance
from seamark.protocol.states import Seal
from seamark.protocol.verdicts import DriverState, Verdict
from tests.unit.checkpoint.memory_sink import MemorySink
from tests.unit.checkpoint.test_coordinator import World, until

LOSS = Acceptance(0, "orders", "written by hand", "ada@etl")


class Left(World):
    """What a driver of generation 1 has left: epoch 0 stored, and a transaction it never stored."""

    state = DriverState.IS_GONE

    @property
    def sink(self) -> MemorySink:
        return self.sinks["orders"]

    def leave(self, *, decided: bool) -> CheckpointStore:
        store = self.job().store
        store.open("job")
        store.claim_generation(1)
        parts = {"orders": SinkEpoch(10, (self.sink.flush("stored", 1), self.sink.flush("too", 1)))}
        store.write_prepared(0, 1, parts, None)
        self.sink.flush("unstored", 1)
        if decided:
            self.decide(0)
        return store

    def transactions(self, settled_below: int = 0) -> JobTransactions:
        def nothing(uri: str) -> None:
            raise AssertionError(uri)

        job, lives = self.job(), lambda: self.state
        return JobTransactions(job, lives, nothing, settled_below)  # type: ignore[arg-type]

    def verdicts(self) -> dict[str, Verdict]:
        with self.transactions() as found:
            return {one.handle: one.verdict for one in found.list()}


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    world = Left(tmp_path)
    yield world
    for driver in world.drivers:
        driver.finish()


def go_on(left: Left) -> None:
    """Start the job again: it must settle everything and take an epoch."""
    driver = left.driver()
    left.epoch(driver, driver.restored_epoch + 1)
    left.decide(driver.restored_epoch + 1)
    until(lambda: driver.last_committed == driver.restored_epoch + 1)


# --- verdicts


@pytest.mark.parametrize(
    ("decided", "state", "stored", "unstored"),
    [
        (True, DriverState.IS_GONE, Verdict.MUST_COMMIT, Verdict.SAFE_TO_ABORT),
        (True, DriverState.UNKNOWN, Verdict.MUST_COMMIT, Verdict.UNKNOWN),
        (True, DriverState.LIVES, Verdict.IN_USE, Verdict.IN_USE),
        (False, DriverState.IS_GONE, Verdict.SAFE_TO_ABORT, Verdict.SAFE_TO_ABORT),
        (False, DriverState.UNKNOWN, Verdict.UNKNOWN, Verdict.UNKNOWN),
        (False, DriverState.LIVES, Verdict.IN_USE, Verdict.IN_USE),
    ],
)
def test_verdicts(
    left: Left, decided: bool, state: DriverState, stored: Verdict, unstored: Verdict
) -> None:
    store = left.leave(decided=decided)
    left.state = state
    assert left.verdicts() == {"stored": stored, "too": stored, "unstored": unstored}
    [part] = stored_parts("job", store, state)
    assert (part.count, part.verdict) == (2, stored)


def test_a_settled_generation_is_safe_whatever_its_successor_does(left: Left) -> None:
    left.leave(decided=True)
    left.driver()
    left.sink.flush("a task that slept", 1)
    left.state = DriverState.UNKNOWN
    assert left.verdicts() == {"a task that slept": Verdict.SAFE_TO_ABORT}


def test_a_job_that_has_never_run_has_no_transactions(left: Left) -> None:
    with pytest.raises(UserError, match="has never run"), left.transactions():
        pass
    assert not list(left.directory.rglob("*.json"))


# --- commit and abort


def test_commit_all_and_go_on(left: Left) -> None:
    store = left.leave(decided=True)
    with left.transactions() as found:
        assert [one.handle for one in found.commit([], force=False)] == ["stored", "too"]
    assert left.sink.visible == ["stored", "too"]
    assert store.epoch(0).seals == {1: Seal.COMMIT}
    go_on(left)
    assert left.sink.visible == ["stored", "too", "1.2"]


def test_abort_all_fences_the_driver_first(left: Left) -> None:
    store = left.leave(decided=False)
    with left.transactions() as found:
        assert len(found.abort([], force=False)) == 3
    assert not left.sink.open
    assert store.epoch(0).seals == {1: Seal.ABORT}
    assert store.generations() == [1, 2]
    left.decide(0)  # the driver was only asleep
    go_on(left)
    assert left.sink.visible == ["0.3"]


def test_abort_leaves_what_must_be_committed(left: Left) -> None:
    left.leave(decided=True)
    with left.transactions() as found:
        assert [one.handle for one in found.abort([], force=False)] == ["unstored"]
    assert set(left.sink.open) == {"stored", "too"}
    go_on(left)
    assert left.sink.visible == ["stored", "too", "1.3"]


@pytest.mark.parametrize(
    ("verb", "decided", "handle", "why"),
    [
        ("abort", True, "stored", "would lose rows. --force"),
        ("commit", False, "stored", "would show rows twice. --force"),
        ("commit", True, "unstored", "--force"),
        ("abort", True, "nobody's", "no open transaction of job 'job'"),
    ],
)
def test_a_contradiction_is_refused(
    left: Left, verb: str, decided: bool, handle: str, why: str
) -> None:
    left.leave(decided=decided)
    with left.transactions() as found, pytest.raises(UserError, match=why):
        getattr(found, verb)([handle], force=False)
    assert len(left.sink.open) == 3
    assert not left.sink.visible


def test_nothing_is_done_where_one_of_several_is_refused(left: Left) -> None:
    store = left.leave(decided=True)
    with left.transactions() as found, pytest.raises(UserError, match="would lose rows"):
        found.abort(["unstored", "stored"], force=False)
    assert len(left.sink.open) == 3
    assert store.generations() == [1], "not even the job was taken over"


def test_what_is_in_use_is_never_ended(left: Left) -> None:
    left.leave(decided=True)
    left.state = DriverState.LIVES
    with left.transactions() as found:
        for verb in (found.commit, found.abort):
            with pytest.raises(UserError, match="its driver will end it"):
                verb(["stored"], force=True)
            assert verb([], force=False) == []
    assert len(left.sink.open) == 3


def test_a_driver_ends_only_what_older_generations_began_since(left: Left) -> None:
    """Generation 2 has settled all of generation 1. A sleeping task of 1 wakes and flushes."""
    store = left.leave(decided=True)
    left.driver().finish()
    left.state = DriverState.LIVES
    left.sink.flush("late", 1)
    left.sink.flush("own", 2)
    left.sink.flush("newer", 3)
    with left.transactions(settled_below=2) as found:
        verdicts = {one.handle: one.verdict for one in found.list()}
        assert verdicts.pop("late") is Verdict.SAFE_TO_ABORT
        assert set(verdicts.values()) == {Verdict.IN_USE}
        with pytest.raises(UserError, match="its driver will end it"):
            found.abort(["own"], force=True)
        with pytest.raises(UserError, match="can only be aborted"):
            found.commit(["late"], force=True)
        assert [one.handle for one in found.abort([], force=False)] == ["late"]
        with pytest.raises(UserError, match="runs"):
            found.accept_loss(LOSS)
    assert left.sink.open.keys() == {"own", "newer"}
    assert max(store.generations()) == 2, "the driver keeps its job"


def test_an_unstored_transaction_is_not_committed_even_by_force(left: Left) -> None:
    left.leave(decided=True)
    with left.transactions() as found, pytest.raises(UserError, match="can only be aborted"):
        found.commit(["unstored"], force=True)
    assert "unstored" in left.sink.open


def test_force_aborts_what_must_be_committed_and_the_job_stops_for_it(left: Left) -> None:
    left.leave(decided=True)
    with left.transactions() as found:
        found.abort(["stored"], force=True)
    with pytest.raises(LostTransactionError) as caught:
        left.driver()
    assert caught.value.transactions == {"stored"}
    left.drivers.clear()
    with left.transactions() as found:
        found.accept_loss(LOSS)
    go_on(left)
    assert left.sink.visible[0] == "too"


# --- losses


def lose(left: Left, handle: str = "stored") -> None:
    del left.sink.open[handle]


def test_an_accepted_loss_lets_the_job_go_on(left: Left) -> None:
    store = left.leave(decided=True)
    lose(left)
    with pytest.raises(LostTransactionError):
        left.driver()
    left.drivers.clear()
    with left.transactions() as found:
        accepted = found.accept_loss(LOSS)
    assert (accepted.transactions, accepted.unproved, accepted.rows) == (("stored",), (), 10)
    assert (accepted.reason, accepted.accepted_by) == ("written by hand", "ada@etl")
    assert read_losses(store.files) == [accepted]
    go_on(left)
    assert left.sink.visible[0] == "too"
    assert store.epoch(0).committed == 1
    assert list(left.drivers[0].losses) == [accepted]


def test_an_acceptance_is_only_for_the_transactions_it_names(left: Left) -> None:
    left.leave(decided=True)
    lose(left)
    with left.transactions() as found:
        found.accept_loss(LOSS)
    left.sink.visible.remove("too")  # an operator has deleted rows since
    with pytest.raises(LostTransactionError) as caught:
        left.driver()
    left.drivers.clear()
    assert caught.value.transactions == {"stored", "too"}


@pytest.mark.parametrize(
    ("decided", "loss", "why"),
    [
        (True, LOSS, "nothing of epoch 0 is lost"),
        (False, LOSS, "epoch 0 is not decided"),
        (True, Acceptance(1, "orders"), "epoch 1 is not decided"),
        (True, Acceptance(0, "payments"), "declares no sink 'payments'; there are orders"),
    ],
)
def test_no_loss_is_accepted_where_none_is(
    left: Left, decided: bool, loss: Acceptance, why: str
) -> None:
    store = left.leave(decided=decided)
    with left.transactions() as found, pytest.raises(UserError, match=why):
        found.accept_loss(loss)
    assert read_losses(store.files) == []


def test_no_loss_is_accepted_of_a_committed_epoch_or_beside_a_driver(left: Left) -> None:
    store = left.leave(decided=True)
    go_on(left)
    with left.transactions() as found:
        with pytest.raises(LossRefusedError, match="committed at every sink"):
            found.accept_loss(LOSS)
        left.state = DriverState.LIVES
        with pytest.raises(UserError, match="seamark stop job"):
            found.accept_loss(LOSS)
    assert read_losses(store.files) == []


def test_an_unproved_loss_needs_force(left: Left) -> None:
    left.leave(decided=True)
    left.sink.answers = [CommitOutcome.UNKNOWN, CommitOutcome.COMMITTED] * 2
    with left.transactions() as found:
        with pytest.raises(LossRefusedError, match="rows may be visible"):
            found.accept_loss(LOSS)
        accepted = found.accept_loss(Acceptance(0, "orders", "I looked", "ada", True))
    assert accepted.unproved == ("stored",)


def test_a_damaged_record_stops_the_commit_and_no_page(left: Left) -> None:
    store = left.leave(decided=True)
    lose(left)
    with left.transactions() as found:
        found.accept_loss(LOSS)
    path = left.directory / "losses/0.orders.json"
    path.write_text(path.read_text().replace("by hand", "by foot"))
    assert read_losses(store.files) == []
    with pytest.raises(Exception, match=r"losses/0\.orders\.json: the checksum does not match"):
        left.driver()
    left.drivers.clear()

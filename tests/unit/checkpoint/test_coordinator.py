"""How: a real coordinator on a real directory, a sink in memory, and a commit log written by hand.

Spark is played by `decide`: it makes commits/<epoch>, as Spark does after foreachBatch returns.
"""

from __future__ import annotations

import errno
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from seamark.api.config import CheckpointConfig
from seamark.checkpoint.checkpointed_job import CheckpointedJob, QueryRun
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.flow_figures import CommitCounts, FlowFigures
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.contracts.sink import CommitOutcome
from seamark.files.local import LocalDirectory
from seamark.model.errors import (
    AbortFailedError,
    CheckpointError,
    CheckpointExpiredError,
    CommitFailedError,
    CorruptRecordError,
    DecisionMissingError,
    DecisionVoidError,
    FencedError,
    LostTransactionError,
    PreflightError,
    RecordNotStoredError,
    StoppedError,
    UserError,
)
from seamark.protocol.states import Seal
from tests.unit.checkpoint.memory_sink import MemorySink


class World:
    """One job's directory, its sinks, and its drivers in turn."""

    def __init__(self, directory: Path, **sinks: MemorySink) -> None:
        self.directory = directory
        self.sinks = sinks or {"orders": MemorySink()}
        self.drivers: list[Coordinator] = []

    def job(self, **settings: Any) -> CheckpointedJob:
        store = CheckpointStore(
            LocalDirectory(self.directory), LocalDirectory(self.directory / "spark")
        )
        return CheckpointedJob("job", self.sinks, store, CheckpointConfig(interval=1, **settings))

    def driver(
        self,
        run: QueryRun | None = None,
        flow: FlowFigures | None = None,
        commit_deadline_s: float = 600,
        **settings: Any,
    ) -> Coordinator:
        job = self.job(**settings)
        driver = Coordinator(job, run, flow, commit_deadline_s=commit_deadline_s)
        self.drivers.append(driver)
        driver.start()
        return driver

    def flush(self, driver: Coordinator, epoch: int) -> list[TaskReport]:
        parts = {
            uid: SinkReport(10, (sink.flush(f"{epoch}.{driver.generation}", driver.generation),))
            for uid, sink in self.sinks.items()
        }
        return [TaskReport(0, 0, time.time(), time.time(), parts)]

    def epoch(self, driver: Coordinator, epoch: int, *, retried: bool = False) -> None:
        self.plan(epoch)
        driver.begin_epoch(epoch)
        driver.store_epoch(epoch, self.flush(driver, epoch), retried=retried)

    def plan(self, epoch: int) -> None:
        (self.directory / "spark/offsets").mkdir(parents=True, exist_ok=True)
        (self.directory / f"spark/offsets/{epoch}").write_text("v1\n{}")

    def decide(self, epoch: int) -> None:
        commits = self.directory / "spark" / "commits"
        commits.mkdir(parents=True, exist_ok=True)
        written = commits / f".{epoch}.tmp"  # the file appears whole, as Spark writes it
        written.write_text("v1\n{}")
        written.rename(commits / str(epoch))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    for driver in world.drivers:
        driver.epochs.failure = driver.failure or RuntimeError("the test has ended")
        with pytest.raises(Exception):  # noqa: B017 - whatever it was
            driver.finish()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not happen within 60 s"
        time.sleep(0.005)


def test_an_epoch_claimed_at_most_once_is_skipped_in_whatever_mode_the_job_goes_on(
    world: World,
) -> None:
    """Its rows may be visible already, and would be there twice."""
    first = world.driver(mode="at-most-once")
    world.plan(0)
    first.begin_epoch(0)
    assert first.claim_epoch(0)
    second = world.driver()
    second.begin_epoch(0)
    assert not second.claim_epoch(0)
    second.store_epoch(0, [], retried=False)
    world.decide(0)
    until(lambda: second.last_committed == 0)
    world.plan(1)
    second.begin_epoch(1)
    assert second.claim_epoch(1)
    assert not world.job().store.claimed_plan(1), "there are claims at-most-once alone"


def test_an_epoch_becomes_visible_after_its_decision_and_not_before(world: World) -> None:
    driver = world.driver()
    world.epoch(driver, 0)
    time.sleep(0.3)
    assert world.sinks["orders"].visible == []
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    assert world.sinks["orders"].visible == ["0.1"]
    assert (world.directory / "epochs/0/committed.json").exists()


def test_the_next_epoch_is_stored_only_when_this_one_is_committed(world: World) -> None:
    driver = world.driver()
    world.sinks["orders"].answers = [CommitOutcome.RETRY] * 1000
    world.epoch(driver, 0)
    world.decide(0)
    second = threading.Thread(target=world.epoch, args=(driver, 1))
    second.start()
    time.sleep(0.3)
    assert not (world.directory / "epochs/1").exists()
    world.sinks["orders"].answers = []
    second.join(60)
    assert (world.directory / "epochs/1/prepared.1.json").exists()


def test_what_becomes_of_transactions_is_counted(world: World) -> None:
    flow, sink = FlowFigures(), world.sinks["orders"]
    driver = world.driver(flow=flow)
    sink.answers = [CommitOutcome.RETRY] * 3
    world.epoch(driver, 0)
    assert driver.pending_committables() == {"orders": 1}
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    assert driver.pending_committables() == {"orders": 0}
    sink.answers = [CommitOutcome.ALREADY_COMMITTED]
    world.epoch(driver, 1)
    world.decide(1)
    until(lambda: driver.last_committed == 1)
    sink.open.clear()  # its answer about epoch 1 was made up
    world.epoch(driver, 2)
    sink.flush("nobody's", driver.generation)
    driver.finish()
    world.drivers.remove(driver)
    assert flow.triggered == 3
    assert flow.commits["orders"] == CommitCounts(
        committed=1, already_committed=1, retried=3, aborted=1, lingering_aborted=1
    )


def test_a_lost_transaction_is_counted_as_failed(world: World) -> None:
    flow = FlowFigures()
    driver = world.driver(flow=flow)
    world.sinks["orders"].answers = [CommitOutcome.LOST]
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: isinstance(driver.failure, LostTransactionError))
    assert flow.commits["orders"] == CommitCounts(lost=1)


@pytest.mark.parametrize("stored", [False, True])
def test_an_epoch_that_is_not_decided_in_time_fails_the_run(world: World, stored: bool) -> None:
    driver = world.driver(timeout=0.2)
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    assert driver.has_completed_epoch
    if stored:
        world.epoch(driver, 1)
    else:
        driver.begin_epoch(1)
    until(lambda: driver.failure is not None)
    assert isinstance(driver.failure, CheckpointExpiredError)
    assert driver.failing_epoch == 1
    with pytest.raises(CheckpointExpiredError, match=r"epoch 1 was not decided within 0.2 s"):
        driver.finish()


def test_a_decided_epoch_does_not_expire_while_those_before_it_are_committed(world: World) -> None:
    driver = world.driver(timeout=2, max_concurrent_checkpoints=2)
    world.sinks["orders"].answers = [CommitOutcome.RETRY] * 10_000
    world.epoch(driver, 0)
    world.decide(0)
    world.epoch(driver, 1)
    world.decide(1)
    time.sleep(3)
    assert driver.failure is None
    world.sinks["orders"].answers = []
    until(lambda: driver.last_committed == 1)


@pytest.mark.parametrize("call", ["preflight", "list_lingering", "commit", "abort", "close"])
def test_no_call_of_a_sink_hangs_a_run_for_ever(world: World, call: str) -> None:
    sink = world.sinks["orders"]
    dead = world.driver()
    dead.begin_epoch(0)
    world.flush(dead, 0)  # for the next one to abort
    dead.epochs.failure = RuntimeError("as if killed")
    sink.hangs = call
    error = {"preflight": PreflightError, "commit": CommitFailedError}.get(call, AbortFailedError)
    begun = time.monotonic()
    try:
        if call in ("commit", "close"):
            driver = world.driver(commit_deadline_s=0.3)
            world.epoch(driver, 0)
            world.decide(0)
            if call == "close":
                until(lambda: driver.last_committed == 0)
                driver.finish()
                assert sink.closed == 1
                return
            until(lambda: driver.failure is not None)
            with pytest.raises(error, match=r"sink 'orders': commit has not returned within 0.3 s"):
                driver.finish()
        else:
            with pytest.raises(error, match=f"sink 'orders': {call} has not returned"):
                world.driver(commit_deadline_s=0.3)
    finally:
        assert time.monotonic() - begun < 30
        sink.released.set()


@pytest.mark.parametrize("record", ["prepared", "sealed"])
def test_a_storage_that_refuses_a_record_fails_the_run_and_loses_nothing(
    world: World, record: str
) -> None:
    """The storage's directory becomes a file: nobody can write below it, root included."""
    driver = world.driver()
    epochs, away = world.directory / "epochs", world.directory / "away"
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    if record == "prepared":
        epochs.rename(away)
        epochs.touch()
        with pytest.raises(RecordNotStoredError, match=r"epochs/1/prepared.1.json cannot be writt"):
            world.epoch(driver, 1)
        driver.fail(RecordNotStoredError("as the query does"))
    else:
        world.epoch(driver, 1)
        epochs.rename(away)
        epochs.touch()
        world.decide(1)
        until(lambda: driver.failure is not None)
        assert isinstance(driver.failure, RecordNotStoredError)
    with pytest.raises(RecordNotStoredError):
        driver.finish()
    epochs.unlink()
    away.rename(epochs)
    successor = world.driver()
    assert successor.last_committed == (0 if record == "prepared" else 1)
    if record == "prepared":
        world.epoch(successor, 1)
        world.decide(1)
    until(lambda: successor.last_committed == 1)
    generation = 2 if record == "prepared" else 1
    assert world.sinks["orders"].visible == ["0.1", f"1.{generation}"]


@pytest.mark.parametrize("failed", [False, True])
def test_a_storage_that_is_away_does_not_make_decided_epochs_undecided(
    world: World, failed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its file system is unmounted: an empty directory is left."""
    monkeypatch.setattr("seamark.checkpoint.coordinator.LAST_WORDS_S", 0.2)
    driver = world.driver()
    world.sinks["orders"].answers = [CommitOutcome.RETRY] * 100_000
    world.epoch(driver, 0)
    world.decide(0)
    until((world.directory / "epochs/0/sealed.1.json").exists)
    away = world.directory.with_name("away")
    world.directory.rename(away)
    world.directory.mkdir()
    driver.fail(RuntimeError("whatever")) if failed else driver.give_up()
    with pytest.raises((RuntimeError, RecordNotStoredError, CommitFailedError)):
        driver.finish()
    world.sinks["orders"].answers = []
    assert world.sinks["orders"].open, "a decided transaction was aborted"
    shutil.rmtree(world.directory)
    away.rename(world.directory)
    world.driver()
    assert world.sinks["orders"].visible == ["0.1"]


def test_a_pause_begins_when_every_sink_has_committed(world: World) -> None:
    driver = world.driver(min_pause=0.3, max_concurrent_checkpoints=2)
    world.sinks["orders"].answers = [CommitOutcome.RETRY] * 3
    world.epoch(driver, 0)
    world.decide(0)
    driver.begin_epoch(1)
    (first,) = driver.history
    assert first.tasks == (), "the reports of many tasks are not kept"
    assert driver.begun_s - first.committed_s >= 0.3


def test_a_stop_ends_a_pause(world: World) -> None:
    driver = world.driver(min_pause=60)
    world.epoch(driver, 0)
    world.decide(0)
    held: list[BaseException] = []

    def next_epoch() -> None:
        try:
            driver.begin_epoch(1)
        except StoppedError as error:
            held.append(error)

    thread = threading.Thread(target=next_epoch)
    thread.start()
    until(lambda: driver.last_committed == 0)
    driver.drain(5)
    driver.epochs.turn_away()
    thread.join(60)
    assert held


def test_the_next_epochs_start_proves_a_decision_whose_file_is_gone(world: World) -> None:
    driver = world.driver()
    world.epoch(driver, 0)
    world.plan(1)
    world.epoch(driver, 1)  # Spark starts it after commits/0 only; a late driver deleted this file
    assert driver.last_committed == 0
    assert world.sinks["orders"].visible == ["0.1"]


def test_recovery_commits_the_decided_and_aborts_the_undecided(world: World) -> None:
    first = world.driver()
    world.epoch(first, 0)
    first.epochs.failure = RuntimeError("as if killed")  # its commit thread does nothing more
    with pytest.raises(RuntimeError):
        first.finish()
    world.decide(0)
    second = world.driver()
    assert world.sinks["orders"].visible == ["0.1"]
    assert second.last_committed == 0
    world.epoch(second, 1)
    second.epochs.failure = RuntimeError("as if killed")
    with pytest.raises(RuntimeError):
        second.finish()
    third = world.driver()
    assert third.last_committed == 0
    assert world.sinks["orders"].open == {}
    assert world.sinks["orders"].visible == ["0.1"]


def test_a_fenced_driver_stores_nothing(world: World) -> None:
    first = world.driver()
    second = world.driver()
    assert (first.generation, second.generation) == (1, 2)
    with pytest.raises(FencedError, match="superseded by generation 2"):
        world.epoch(first, 0)
    assert not (world.directory / "epochs/0/prepared.1.json").exists()


def test_a_fenced_driver_that_decides_late_commits_nothing(world: World) -> None:
    first = world.driver()
    world.epoch(first, 0)
    second = world.driver()  # seals and aborts epoch 0 of generation 1
    world.decide(0)  # the old driver's Spark wakes up
    until(lambda: first.failure is not None)
    assert isinstance(first.failure, FencedError)
    assert world.sinks["orders"].visible == []
    with pytest.raises(DecisionVoidError, match="epoch 0"):
        second.begin_epoch(1)  # Spark would go on after the void decision
    world.plan(1)  # the old driver's Spark planned on, before it met its fence
    third = world.driver()
    assert not (world.directory / "spark/commits/0").exists()
    assert not (world.directory / "spark/offsets/1").exists()
    world.epoch(third, 0)
    world.decide(0)
    until(lambda: third.last_committed == 0)
    assert world.sinks["orders"].visible == ["0.3"]


def test_a_deleted_decision_is_put_back(world: World) -> None:
    driver = world.driver()
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    decision = world.directory / "spark/commits/0"
    text = decision.read_text()
    decision.unlink()
    assert world.driver().last_committed == 0
    assert decision.read_text() == text


def test_a_missing_decision_that_no_seal_holds_stops_the_next_start(world: World) -> None:
    driver = world.driver()
    world.epoch(driver, 0)
    driver._store.seal(0, driver.generation, Seal.COMMIT)  # as if a driver had just taken it back
    with pytest.raises(DecisionMissingError, match="commits/0 is missing"):
        world.driver()


def test_a_decided_epoch_without_its_record_stops_the_next_start(world: World) -> None:
    world.driver()
    world.decide(0)
    with pytest.raises(CheckpointError, match="no prepared record"):
        world.driver()


def test_a_damaged_record_is_named(world: World) -> None:
    first = world.driver()
    world.epoch(first, 0)
    first.fail(RuntimeError("as if killed"))
    world.decide(0)
    (world.directory / "epochs/0/prepared.1.json").write_bytes(b"")
    with pytest.raises(CorruptRecordError, match=r"epochs/0/prepared\.1\.json.*empty"):
        world.driver()


def test_retry_is_asked_again_and_lost_is_loud(world: World) -> None:
    sink = world.sinks["orders"]
    sink.answers = [CommitOutcome.RETRY, CommitOutcome.RETRY]
    driver = world.driver()
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    sink.answers = [CommitOutcome.LOST]
    world.epoch(driver, 1)
    world.decide(1)
    until(lambda: driver.failure is not None)
    assert isinstance(driver.failure, LostTransactionError)
    assert "epoch 1" in str(driver.failure)
    assert "'orders'" in str(driver.failure)
    assert "1.1" in str(driver.failure)
    assert "had another target then, put it back for one start" in str(driver.failure)
    assert not (world.directory / "epochs/1/committed.json").exists()


def test_one_lost_sink_does_not_hide_the_other_sinks_rows(tmp_path: Path) -> None:
    a, b = MemorySink(), MemorySink()
    world = World(tmp_path, a=a, b=b)
    driver = world.driver()
    world.epoch(driver, 0)
    a.answers = [CommitOutcome.LOST]
    world.decide(0)
    until(lambda: driver.failure is not None)
    assert b.visible == ["0.1"]
    with pytest.raises(LostTransactionError):
        driver.finish()
    assert (a.closed, b.closed) == (1, 1)


def test_a_commit_that_cannot_be_done_in_time_stays_decided(world: World) -> None:
    world.sinks["orders"].answers = [CommitOutcome.RETRY] * 1000
    driver = world.driver(commit_deadline_s=0.2)
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.failure is not None)
    assert isinstance(driver.failure, CommitFailedError)
    world.sinks["orders"].answers = []
    assert world.driver().last_committed == 0
    assert world.sinks["orders"].visible == ["0.1"]


class OwnError(Exception):
    """An error that only the sink's driver knows."""


@pytest.mark.parametrize("error", [OSError(28, "full"), OwnError("503"), RuntimeError("closed")])
def test_whatever_a_commit_raises_it_is_asked_again(
    world: World, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    sink = world.sinks["orders"]
    driver = world.driver()
    sink.raises["commit"] = error
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: sink.calls.count("commit") > 2)
    assert driver.failure is None
    del sink.raises["commit"]
    until(lambda: driver.last_committed == 0)
    assert sink.visible == ["0.1"]
    said = [r.getMessage() for r in caplog.records if "is asked again" in r.getMessage()]
    assert said == [
        f"sink orders does not answer, and is asked again: {type(error).__name__}: {error}"
    ]


class Answering(MemorySink):
    """Answers in another form than a list."""

    form: Callable[[Any], Any] = staticmethod(iter)

    def commit(self, committables: Any) -> Any:
        return self.form(super().commit(committables))

    def abort(self, committables: Any) -> Any:
        return self.form(super().abort(committables))


def test_outcomes_may_be_any_iterable(tmp_path: Path) -> None:
    world = World(tmp_path, orders=Answering())
    driver = world.driver()
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    world.flush(driver, 1)
    driver.finish()
    assert (world.sinks["orders"].visible, world.sinks["orders"].open) == (["0.1"], {})


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (lambda found: None, "None"),
        (lambda found: True, "True"),
        (lambda found: [], r"\[\]"),
        (lambda found: [True for _ in found], r"\[True\]"),
    ],
)
def test_outcomes_that_are_none_end_the_run_in_one_line(
    tmp_path: Path, form: Callable[[Any], Any], said: str
) -> None:
    world = World(tmp_path, orders=Answering())
    sink = world.sinks["orders"]
    driver = world.driver()
    world.epoch(driver, 0)
    sink.form = form  # type: ignore[attr-defined]
    world.decide(0)
    until(lambda: driver.failure is not None)
    expected = f"^sink 'orders': commit returned {said}; .* one CommitOutcome for each .*$"
    with pytest.raises(UserError, match=expected):
        driver.finish()
    assert sink.calls.count("commit") == 1
    sink.form = iter  # type: ignore[attr-defined]
    driver = world.driver()
    assert driver.last_committed == 0
    world.flush(driver, 1)
    sink.form = form  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=f"abort returned {said}; .* one AbortOutcome for each"):
        driver.finish()


def test_at_the_deadline_of_a_commit_its_last_error_is_named(world: World) -> None:
    world.sinks["orders"].raises["commit"] = OwnError("too many connections")
    driver = world.driver(commit_deadline_s=0.2)
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.failure is not None)
    with pytest.raises(CommitFailedError, match="OwnError: too many connections"):
        driver.finish()
    del world.sinks["orders"].raises["commit"]
    assert world.driver().last_committed == 0


def test_a_start_whose_sink_raises_says_so_in_one_line(world: World) -> None:
    world.sinks["orders"].raises["preflight"] = OwnError("no route")
    with pytest.raises(PreflightError, match=r"sink 'orders': preflight .*\(OwnError: no route\)"):
        world.driver()


@pytest.mark.parametrize("call", ["list_lingering", "abort"])
def test_a_sweep_that_fails_ends_no_job_and_comes_again(
    world: World, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.checkpoint.coordinator.LINGERING_CHECK_S", 0.0)
    sink = world.sinks["orders"]
    world.driver()
    driver = world.driver()
    sink.flush("woke-up", 1)
    sink.raises[call] = OSError("the store is away")
    for epoch in range(3):
        world.epoch(driver, epoch)
        world.decide(epoch)
        until(lambda epoch=epoch: driver.last_committed == epoch)  # type: ignore[misc]
    assert driver.failure is None
    assert "woke-up" in sink.open
    del sink.raises[call]
    world.epoch(driver, 3)
    world.decide(3)
    until(lambda: "woke-up" not in sink.open)
    assert driver.failure is None


@pytest.mark.parametrize("call", ["list_lingering", "abort"])
def test_a_dead_attempt_that_cannot_be_aborted_now_is_aborted_with_the_next_epoch(
    world: World, call: str
) -> None:
    sink = world.sinks["orders"]
    driver = world.driver()
    sink.flush("0.dead", 1)
    sink.raises[call] = OSError("the store is away")
    world.epoch(driver, 0, retried=True)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    assert "0.dead" in sink.open
    del sink.raises[call]
    world.epoch(driver, 1)
    assert "0.dead" not in sink.open
    world.decide(1)
    until(lambda: driver.last_committed == 1)
    assert sink.visible == ["0.1", "1.1"]


@pytest.mark.parametrize("call", ["list_lingering", "abort"])
def test_a_run_that_ends_well_leaves_to_the_next_start_what_it_cannot_abort(
    world: World, call: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("seamark.checkpoint.sink_commits.LISTING_DEADLINE_S", 0.0)
    sink = world.sinks["orders"]
    driver = world.driver(commit_deadline_s=3)
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    driver.begin_epoch(1)
    world.flush(driver, 1)
    sink.raises[call] = OSError("the store is away")
    driver.finish()
    assert driver.left_open and driver.failure is None
    assert "leaves transactions open" in caplog.text
    assert list(sink.open) == ["1.1"]
    with pytest.raises(AbortFailedError):
        world.driver(commit_deadline_s=3)  # nothing is written before they are aborted
    del sink.raises[call]
    successor = world.driver()
    assert not sink.open and successor.last_committed == 0
    successor.finish()
    assert not successor.left_open
    assert sink.visible == ["0.1"]


def test_an_end_at_which_a_transaction_proves_committed_by_another_fails(world: World) -> None:
    driver = world.driver()
    sink = world.sinks["orders"]
    sink.flush("0.stray", driver.generation)
    sink.visible.append("0.stray")
    with pytest.raises(AbortFailedError, match="committed already"):
        driver.finish()


def test_a_dead_attempts_transaction_is_aborted_when_a_task_was_retried(world: World) -> None:
    driver = world.driver()
    sink = world.sinks["orders"]
    driver.begin_epoch(0)
    sink.flush("dead attempt", driver.generation)
    world.plan(0)
    driver.store_epoch(0, world.flush(driver, 0), retried=True)
    assert list(sink.open) == ["0.1"]


def test_finish_commits_the_decided_and_leaves_nothing_open(world: World) -> None:
    driver = world.driver()
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    world.epoch(driver, 1)
    driver.finish()
    assert world.sinks["orders"].visible == ["0.1"]
    assert world.sinks["orders"].open == {}
    world.drivers.remove(driver)
    assert world.driver().last_committed == 0


def test_at_least_once_is_visible_before_the_decision(world: World) -> None:
    driver = world.driver(mode="at-least-once")
    world.epoch(driver, 0)
    assert world.sinks["orders"].visible == ["0.1"]
    driver.fail(RuntimeError("as if killed"))
    again = world.driver(mode="at-least-once")
    world.epoch(again, 0)
    assert world.sinks["orders"].visible == ["0.1", "0.2"]  # a replay duplicates


def test_old_records_are_pruned(world: World) -> None:
    driver = world.driver()
    for epoch in range(103):
        world.epoch(driver, epoch)
        world.decide(epoch)
        until(lambda: driver.last_committed == epoch)  # noqa: B023
    until(lambda: len(list((world.directory / "epochs").iterdir())) == 100)
    assert not (world.directory / "epochs/2").exists()
    driver.finish()
    world.drivers.remove(driver)
    assert world.driver().last_committed == 102


class Undeletable(LocalDirectory):
    """Deletes nothing: `hangs` until it is set, or refuses."""

    hangs: threading.Event | None = None

    def delete(self, path: str) -> None:
        if self.hangs is not None:
            self.hangs.wait()
        raise OSError(errno.ENOTEMPTY, "Directory not empty", path)


@pytest.mark.parametrize("hangs", [False, True])
def test_what_cannot_be_deleted_ends_no_run_and_holds_up_no_commit(
    world: World, hangs: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.checkpoint.upkeep.LAST_WORK_S", 0.2 if hangs else 60)
    files = Undeletable(world.directory)
    files.hangs = threading.Event() if hangs else None
    real = world.job(num_retained=1)
    store = CheckpointStore(files, LocalDirectory(world.directory / "spark"))
    job = CheckpointedJob("job", world.sinks, store, real.checkpoint)
    monkeypatch.setattr(store, "preflight", lambda: None)
    monkeypatch.setattr(world, "job", lambda: job)
    driver = world.driver()
    for epoch in range(16):
        world.epoch(driver, epoch)
        world.decide(epoch)
        until(lambda: driver.last_committed == epoch)  # noqa: B023
    driver.finish()
    world.drivers.remove(driver)
    if files.hangs is not None:
        files.hangs.set()
    else:
        assert caplog.text.count("Directory not empty") == 1
    assert len(world.sinks["orders"].visible) == 16
    monkeypatch.undo()
    successor = world.driver(num_retained=1)
    world.epoch(successor, 16)
    world.decide(16)
    until(lambda: len(list((world.directory / "epochs").iterdir())) == 10)


def test_an_idle_driver_outlives_a_storage_that_is_away_for_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("seamark.checkpoint.coordinator.IDLE_CHECK_S", 0.01)
    driver = world.driver()
    looks: list[int] = []

    def away() -> int:
        looks.append(1)
        raise RecordNotStoredError("the storage is away")

    with monkeypatch.context() as unreachable:
        unreachable.setattr(driver._store, "latest_decision", away)
        until(lambda: len(looks) > 3)
    world.epoch(driver, 0)
    world.decide(0)
    until(lambda: driver.last_committed == 0)
    assert caplog.text.count("the storage is away") == 1


@pytest.mark.parametrize("file", ["lease/1.json", "losses/0.orders.json", "ledger/9.json"])
def test_a_damaged_file_that_serves_only_people_stops_no_start(world: World, file: str) -> None:
    driver = world.driver()
    for epoch in range(12):
        world.epoch(driver, epoch)
        world.decide(epoch)
        until(lambda: driver.last_committed == epoch)  # noqa: B023
    driver.finish()
    world.drivers.remove(driver)
    path = world.directory / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"{")
    assert world.driver().last_committed == 11


def test_committers_made_before_a_failure_are_closed(tmp_path: Path) -> None:
    class Unmade(MemorySink):
        def create_committer(self, context: Any) -> Any:
            raise PreflightError("no driver of this system")

    first = MemorySink()
    with pytest.raises(PreflightError):
        World(tmp_path, a=first, b=Unmade()).driver()
    assert first.closed == 1


def test_a_recovery_that_waits_for_a_dead_system_can_be_given_up(world: World) -> None:
    first = world.driver()
    world.epoch(first, 0)
    first.fail(RuntimeError("as if killed"))
    world.decide(0)
    world.sinks["orders"].answers = [CommitOutcome.RETRY] * 10_000
    second = Coordinator(world.job())
    threading.Timer(0.3, second.give_up).start()
    begin = time.monotonic()
    with pytest.raises(CommitFailedError, match="stays decided"):
        second.start()
    assert time.monotonic() - begin < 60

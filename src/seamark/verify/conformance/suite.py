"""The tests: real writers and committers on the real system, without Spark.

`SinkConformance` is for every sink; `further_suites.py` has more tests for some sinks. Rows are
numbers, so a reader's list shows loss and duplicates at once.
"""

import pickle
import random
import signal
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import CorruptRecordError
from seamark.verify.conformance import steps
from seamark.verify.conformance.outages import OutageConformance
from seamark.verify.conformance.steps import (
    DONE,
    SinkUnderTest,
    attempt,
    committer,
    driver,
    in_child,
    ipc,
    three,
    until_proved,
    write,
)


class SinkConformance:
    """The tests. A subclass gives the fixture `under`: a `SinkUnderTest` with an empty target."""

    @pytest.fixture(autouse=True)
    def _checkpoints(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A directory for the checkpoints of sinks with a spool."""
        monkeypatch.setattr(steps, "checkpoints", tmp_path / "seamark-checkpoints")

    def test_outages_are_tried(self, request: pytest.FixtureRequest) -> None:
        """Skipped with a warning, where a test file leaves the most frequent trouble untried."""
        classes = [kind for kind in vars(request.module).values() if isinstance(kind, type)]
        if not any(OutageConformance in kind.__mro__[1:] for kind in classes):
            untried = (
                f"{request.module.__name__} does not try a system that is away or hangs: add "
                "OutageConformance, and give SinkUnderTest line, server or outages"
            )
            warnings.warn(untried, stacklevel=1)
            pytest.skip(untried)

    def test_prepared_rows_are_invisible_until_the_commit(self, under: SinkUnderTest) -> None:
        """Pre-commit shows nothing; the commit shows all, and leaves nothing lingering."""
        driver_side = committer(under, driver())
        _, committables = write(under, attempt(), range(10))
        assert len(committables) == 1
        assert under.visible() == []
        assert list(driver_side.commit(committables)) == [CommitOutcome.COMMITTED]
        assert sorted(under.visible()) == list(range(10))
        assert list(driver_side.list_lingering()) == []
        driver_side.close()

    def test_prepared_rows_survive_kill_9_of_their_process(self, under: SinkUnderTest) -> None:
        """Another process can commit the committables returned by `prepare_commit`."""
        driver_side = committer(under, driver())
        status, dumped = in_child(
            under.sink, "write", attempt(), ipc(under.batch(range(1000))), die=True
        )
        assert status == -signal.SIGKILL
        assert under.visible() == []
        committables = [under.sink.load(data) for data in dumped]
        assert until_proved(driver_side.commit, committables) == [CommitOutcome.COMMITTED]
        assert sorted(under.visible()) == list(range(1000))

    def test_a_repeated_commit_is_proved_and_adds_nothing(self, under: SinkUnderTest) -> None:
        """After a lost reply, and by a successor: ALREADY_COMMITTED, and each row once."""
        first = committer(under, driver(1))
        _, committables = write(under, attempt(), range(10))
        assert until_proved(first.commit, committables) == [CommitOutcome.COMMITTED]
        first.close()
        for generation in (1, 2):  # the same driver, after a lost reply, and its successor
            again = committer(under, driver(generation))
            outcomes = until_proved(again.commit, committables)
            assert outcomes == [CommitOutcome.ALREADY_COMMITTED]
            again.close()
        assert sorted(under.visible()) == list(range(10))

    def test_a_repeated_abort_stays_aborted(self, under: SinkUnderTest) -> None:
        """An abort may be asked for again."""
        driver_side = committer(under, driver())
        _, committables = write(under, attempt(), range(10))
        for _ in range(2):
            outcomes = until_proved(driver_side.abort, committables)
            assert outcomes == [AbortOutcome.ABORTED]
        assert under.visible() == []
        assert list(driver_side.list_lingering()) == []

    def test_a_commit_after_an_abort_is_lost(self, under: SinkUnderTest) -> None:
        """A late commit must fail, and report the rows as gone."""
        old, new = committer(under, driver(1)), under.sink.create_committer(driver(2))
        _, committables = write(under, attempt(), range(10))
        assert until_proved(new.abort, committables) == [AbortOutcome.ABORTED]
        assert until_proved(old.commit, committables) == [under.gone]
        assert under.visible() == []

    def test_an_abort_after_a_commit_says_so(self, under: SinkUnderTest) -> None:
        """A late abort must change nothing, and find the commit."""
        old, new = committer(under, driver(1)), under.sink.create_committer(driver(2))
        _, committables = write(under, attempt(), range(10))
        assert until_proved(old.commit, committables) == [CommitOutcome.COMMITTED]
        assert until_proved(new.abort, committables) == [AbortOutcome.COMMITTED]
        assert sorted(under.visible()) == list(range(10))

    def test_outcomes_come_one_per_committable_in_order(self, under: SinkUnderTest) -> None:
        """One call gets a committed, an aborted and an open transaction."""
        driver_side = committer(under, driver())
        parts = three(under)
        assert until_proved(driver_side.commit, parts[:1]) == [CommitOutcome.COMMITTED]
        assert until_proved(driver_side.abort, parts[1:2]) == [AbortOutcome.ABORTED]
        assert until_proved(driver_side.commit, parts) == [
            CommitOutcome.ALREADY_COMMITTED,
            under.gone,
            CommitOutcome.COMMITTED,
        ]
        assert sorted(under.visible()) == [*range(10), *range(20, 30)]
        assert list(driver_side.commit([])) == []
        assert list(driver_side.abort([])) == []

    def test_of_two_attempts_only_the_given_one_becomes_visible(self, under: SinkUnderTest) -> None:
        """The other attempt is found lingering, and can be aborted."""
        driver_side = committer(under, driver())
        _, loser = write(under, attempt(attempt=0), range(10))
        _, winner = write(under, attempt(attempt=1), range(10))
        assert loser[0].handle != winner[0].handle
        assert until_proved(driver_side.commit, winner) == [CommitOutcome.COMMITTED]
        assert sorted(under.visible()) == list(range(10))
        left = list(driver_side.list_lingering())
        assert [lingering.committable.handle for lingering in left] == [loser[0].handle]
        outcomes = until_proved(driver_side.abort, [lingering.committable for lingering in left])
        assert outcomes == [AbortOutcome.ABORTED]
        assert list(driver_side.list_lingering()) == []
        assert sorted(under.visible()) == list(range(10))

    def test_an_attempt_that_gives_up_leaves_nothing_visible(self, under: SinkUnderTest) -> None:
        """`abort` in the middle, before the first row, and after `prepare_commit`."""
        driver_side = committer(under, driver())
        begun = under.sink.create_writer(attempt(attempt=1))
        begun.write(under.batch(range(5)))
        untouched = under.sink.create_writer(attempt(attempt=2))
        prepared, committables = write(under, attempt(attempt=3), range(5))
        for writer in (begun, untouched, prepared):
            writer.abort()
        left = [lingering.committable for lingering in driver_side.list_lingering()]
        assert set(until_proved(driver_side.abort, left)) <= {AbortOutcome.ABORTED}
        assert until_proved(driver_side.commit, committables) == [under.gone]
        assert under.visible() == []

    def test_a_writer_of_an_old_generation_is_shut_out(self, under: SinkUnderTest) -> None:
        """It writes on after its successor has aborted its rows: the new ones linger, apart from
        the successor's own."""
        old, new = committer(under, driver(1)), under.sink.create_committer(driver(2))
        _, before = write(under, attempt(generation=1, epoch=7), range(10))
        left = list(new.list_lingering())
        assert [(f.committable.handle, f.generation) for f in left] == [(before[0].handle, 1)]
        assert until_proved(new.abort, [f.committable for f in left]) == [AbortOutcome.ABORTED]

        _, late = write(under, attempt(generation=1, epoch=7, attempt=1), range(10))
        _, own = write(under, attempt(generation=2, epoch=7), range(10))
        assert until_proved(new.commit, own) == [CommitOutcome.COMMITTED]
        assert until_proved(old.commit, before) == [under.gone]
        assert [f.committable.handle for f in new.list_lingering() if f.generation < 2] == [
            late[0].handle
        ]
        assert sorted(under.visible()) == list(range(10))

    def test_an_epoch_without_rows_has_no_committables(self, under: SinkUnderTest) -> None:
        """No row, or empty batches only: no transaction."""
        driver_side = committer(under, driver())
        untouched = under.sink.create_writer(attempt())
        assert list(untouched.prepare_commit()) == []
        empty = under.sink.create_writer(attempt(partition=1))
        empty.write(under.batch([]))
        empty.write(under.batch([]))
        assert list(empty.prepare_commit()) == []
        assert list(driver_side.list_lingering()) == []
        assert under.visible() == []

    def test_a_recovery_lists_exactly_what_lingers(self, under: SinkUnderTest) -> None:
        """Every open transaction of this job and sink, its writer dead or alive, and none already
        ended."""
        driver_side = committer(under, driver(1))
        _, committed = write(under, attempt(epoch=1), range(10))
        until_proved(driver_side.commit, committed)  # before epoch 2 reports it as settled
        _, aborted = write(under, attempt(epoch=2), range(10, 20))
        _, open_ = write(under, attempt(epoch=2, partition=5, attempt=9), range(20, 30))
        write(under, attempt(epoch=2, uid="other-out"), range(30, 40))
        write(under, attempt(epoch=2, job="deadbeef"), range(40, 50))
        until_proved(driver_side.abort, aborted)
        status, _ = in_child(
            under.sink, "write", attempt(epoch=3), ipc(under.batch(range(50, 60))), die=True,
            failpoint=under.writer_failpoint,
        )  # fmt: skip
        assert status == -signal.SIGKILL

        successor = under.sink.create_committer(driver(2))
        left = list(successor.list_lingering())
        assert open_[0].handle in {lingering.committable.handle for lingering in left}
        assert len(left) == 2
        assert {lingering.generation for lingering in left} == {1}
        loaded = [under.sink.load(under.sink.dump(lingering.committable)) for lingering in left]
        assert until_proved(successor.abort, loaded) == [AbortOutcome.ABORTED] * 2
        assert list(successor.list_lingering()) == []
        assert sorted(under.visible()) == list(range(10))

    def test_committables_survive_dump_and_load_and_nothing_else_does(
        self, under: SinkUnderTest
    ) -> None:
        """Each flipped bit and each cut-off tail raises CorruptRecordError."""
        committer(under, driver()).close()
        _, (committable,) = write(under, attempt(), range(10))
        data = under.sink.dump(committable)
        assert under.sink.load(data) == committable
        damaged = [data[:length] for length in range(len(data))]
        damaged += [data + b"x", b"\x80\x04N.", pickle.dumps(committable)]
        for position in range(len(data)):
            for bit in range(8):
                flipped = bytearray(data)
                flipped[position] ^= 1 << bit
                damaged.append(bytes(flipped))
        for wrong in damaged:
            with pytest.raises(CorruptRecordError):
                under.sink.load(wrong)

    def test_a_commit_killed_at_each_failpoint_is_ended_by_the_next(
        self, under: SinkUnderTest
    ) -> None:
        """The next driver commits the remaining transactions, and proves the others."""
        expected: list[int] = []
        for epoch, failpoint in enumerate(under.commit_failpoints or ("",)):
            committer(under, driver(epoch + 1)).close()
            numbers = range(30 * epoch, 30 * epoch + 30)
            parts = three(under, numbers, epoch + 1, epoch)
            dumped = [under.sink.dump(part) for part in parts]
            status, _ = in_child(
                under.sink, "commit", driver(epoch + 1), dumped,
                die=not failpoint, failpoint=failpoint,
            )  # fmt: skip
            assert status == -signal.SIGKILL, f"{failpoint} was never reached"
            successor = committer(under, driver(epoch + 2))
            outcomes = until_proved(successor.commit, parts)
            assert set(outcomes) <= DONE, failpoint
            assert CommitOutcome.ALREADY_COMMITTED in outcomes, failpoint
            assert list(successor.list_lingering()) == []
            successor.close()
            expected += numbers
            assert sorted(under.visible()) == expected, failpoint

    def test_of_a_commit_and_an_abort_at_once_exactly_one_succeeds(
        self, under: SinkUnderTest
    ) -> None:
        """Two drivers disagree. The protocol's seals prevent this, but the sink must still not
        answer both with success."""
        old, new = committer(under, driver(1)), under.sink.create_committer(driver(2))
        shuffle = random.Random(7)
        expected: list[int] = []
        for epoch in range(12):
            numbers = range(10 * epoch, 10 * epoch + 10)
            _, committables = write(under, attempt(epoch=epoch), numbers)
            outcomes: dict[str, Any] = {}
            start = threading.Barrier(2)

            def end(
                how: str,
                call: Any,
                start: threading.Barrier = start,
                outcomes: dict[str, Any] = outcomes,
                items: Sequence[Any] = committables,
            ) -> None:
                start.wait()
                outcomes[how] = until_proved(call, items)[0]

            both = [("commit", old.commit), ("abort", new.abort)]
            shuffle.shuffle(both)
            threads = [threading.Thread(target=end, args=pair) for pair in both]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if outcomes["commit"] in DONE:
                assert outcomes["abort"] is AbortOutcome.COMMITTED
                expected += numbers
            else:
                assert outcomes["commit"] is under.gone
                assert outcomes["abort"] is AbortOutcome.ABORTED
        assert sorted(under.visible()) == expected

    def test_sink_is_picklable_and_says_what_it_is(self, under: SinkUnderTest) -> None:
        """It travels to the executors, and `explain` prints its one line."""
        assert pickle.loads(pickle.dumps(under.sink)) == under.sink
        assert under.sink.describe()
        assert "\n" not in under.sink.describe()

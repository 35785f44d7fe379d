"""`SinkConformance` for a subclass of `sm.WriteAheadSink`: its transaction is a whole epoch."""

import signal

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.sinks.write_ahead import WriteAheadSink
from seamark.verify.conformance.steps import (
    DONE,
    SinkUnderTest,
    attempt,
    committer,
    driver,
    in_child,
    three,
    until_proved,
    write,
)
from seamark.verify.conformance.suite import SinkConformance


class WriteAheadConformance(SinkConformance):
    """Give `SinkUnderTest` the `writer_failpoint` ``write-ahead-written`` and the
    `commit_failpoints` ``sent-recorded``. Its `visible` must return the rows seen by the target's
    readers."""

    def test_outcomes_come_one_per_committable_in_order(self, under: SinkUnderTest) -> None:
        """An epoch is sent whole or not at all: with one file gone, all of its rows are lost."""
        driver_side = committer(under, driver())
        parts = three(under)
        assert until_proved(driver_side.abort, parts[1:2]) == [AbortOutcome.ABORTED]
        assert until_proved(driver_side.commit, parts) == [CommitOutcome.LOST] * 3
        assert under.visible() == []
        _, first = write(under, attempt(epoch=1), range(5))
        _, second = write(under, attempt(epoch=2), range(5, 10))
        assert until_proved(driver_side.commit, first) == [CommitOutcome.COMMITTED]
        assert until_proved(driver_side.commit, [*second, *first]) == [
            CommitOutcome.COMMITTED,
            CommitOutcome.ALREADY_COMMITTED,
        ]
        assert sorted(under.visible()) == list(range(10))
        assert list(driver_side.commit([])) == []
        assert list(driver_side.abort([])) == []

    def test_all_tasks_rows_come_in_the_same_order_each_time(self, under: SinkUnderTest) -> None:
        """Whatever the order of the committables; in two epochs, since each is sent once."""
        driver_side = committer(under, driver())
        seen = []
        for epoch, turn in ((0, 1), (1, -1)):
            before = len(under.visible())
            parts = three(under, epoch=epoch)
            until_proved(driver_side.commit, parts[::turn])
            seen.append(under.visible()[before:])
        assert seen == [list(range(30))] * 2

    def test_a_crash_between_send_and_record_doubles_rows_only_without_a_token(
        self, under: SinkUnderTest
    ) -> None:
        """The one window of the write-ahead way; a target that keeps the token closes it."""
        committer(under, driver()).close()
        parts = [write(under, attempt(partition=p), [2 * p, 2 * p + 1])[1][0] for p in range(2)]
        dumped = [under.sink.dump(part) for part in parts]
        status, _ = in_child(under.sink, "commit", driver(), dumped, failpoint="rows-sent")
        assert status == -signal.SIGKILL
        assert sorted(under.visible()) == [0, 1, 2, 3]
        successor = committer(under, driver(2))
        assert set(until_proved(successor.commit, parts)) <= DONE
        assert until_proved(successor.commit, parts) == [CommitOutcome.ALREADY_COMMITTED] * 2
        assert isinstance(under.sink, WriteAheadSink)
        times = 1 if under.sink.idempotent else 2
        assert sorted(under.visible()) == sorted([0, 1, 2, 3] * times)

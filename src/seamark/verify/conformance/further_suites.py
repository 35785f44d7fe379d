"""Further tests, for some sinks only; each class names its systems."""

from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.dead_letters import RefusedRow, SelectiveSink
from seamark.contracts.sink import AbortOutcome, CommitOutcome, Committer
from seamark.model.errors import WriteRefusedError
from seamark.verify.conformance.steps import (
    DONE,
    SinkUnderTest,
    attempt,
    committer,
    cut_lines,
    driver,
    until_proved,
    write,
)
from seamark.verify.proxy import Side

HEIR = "beef0000beef0000"
LATE_EPOCH = 5000


class ExpiryConformance:
    """For a system that drops prepared transactions by itself, after a time. Needs `drop`."""

    def test_a_dropped_transaction_is_lost_and_said_to_be(self, under: SinkUnderTest) -> None:
        """The system timed it out: never a success, never RETRY for ever."""
        assert under.drop is not None, "give SinkUnderTest.drop"
        driver_side = committer(under, driver())
        _, committables = write(under, attempt(), range(10))
        under.drop(committables[0])
        assert until_proved(driver_side.commit, committables) == [under.gone]
        assert until_proved(driver_side.abort, committables) == [AbortOutcome.ABORTED]
        assert under.visible() == []


class ForgettingConformance:
    """For every system that tells how a transaction ended: it does not tell for ever. Takes
    `forget`."""

    def test_a_job_that_was_restored_finds_what_the_first_one_committed(
        self, under: SinkUnderTest
    ) -> None:
        """A savepoint names the first job's transactions: the restored job does not commit them
        again."""
        first, heir = committer(under, driver()), under.sink.create_committer(driver(job=HEIR))
        _, committables = write(under, attempt(), range(10))
        assert until_proved(first.commit, committables) == [CommitOutcome.COMMITTED]
        assert until_proved(heir.commit, committables) == [CommitOutcome.ALREADY_COMMITTED]
        assert sorted(under.visible()) == list(range(10))

    def test_what_the_system_has_forgotten_is_unknown_and_not_committed_again(
        self, under: SinkUnderTest
    ) -> None:
        """A savepoint is restored long after its job went on and was deleted. No record tells that
        its transaction was committed. LOST would be wrong, and would make the job write the rows
        again."""
        first, heir = committer(under, driver()), under.sink.create_committer(driver(job=HEIR))
        _, committables = write(under, attempt(), range(10))
        assert until_proved(first.commit, committables) == [CommitOutcome.COMMITTED]
        if under.forget is not None:
            under.forget(committables[0])
        else:
            _, late = write(under, attempt(epoch=LATE_EPOCH), range(10, 15))
            assert until_proved(first.commit, late) == [CommitOutcome.COMMITTED]
        before = sorted(under.visible())
        for _ in range(2):
            assert until_proved(heir.commit, committables) == [CommitOutcome.UNKNOWN]
        assert sorted(under.visible()) == before


class RefusalConformance:
    """For a system that can refuse a row: a type, a constraint, a size. Needs `refused`."""

    def test_a_refused_row_fails_the_attempt_before_the_decision(
        self, under: SinkUnderTest
    ) -> None:
        """`write` or `prepare_commit` raises WriteRefusedError, and none of its rows is visible."""
        assert under.refused is not None, "give SinkUnderTest.refused"
        driver_side = _with_ten_rows(under)
        writer = under.sink.create_writer(attempt(epoch=1))
        with pytest.raises(WriteRefusedError):
            writer.write(under.refused())
            writer.prepare_commit()
        writer.abort()
        left = [lingering.committable for lingering in driver_side.list_lingering()]
        assert set(until_proved(driver_side.abort, left)) <= {AbortOutcome.ABORTED}
        assert sorted(under.visible()) == list(range(10))


class DeadLetterConformance:
    """For a sink that tells refused rows from good ones (`SelectiveSink`). Needs `refused`, with
    the columns of `batch`."""

    def test_the_good_rows_are_taken_and_exactly_the_refused_are_named(
        self, under: SinkUnderTest
    ) -> None:
        """Bad rows at the start, in the middle, next to each other and at the end of a batch."""
        driver_side, bad = _with_ten_rows(under), _refused(under)
        writer = _selective(under)(attempt(epoch=1))
        mixed = pa.Table.from_batches(
            [bad, under.batch(range(10, 50)), bad, bad, under.batch(range(50, 51)), bad]
        )
        named = writer.write_accepted(mixed.combine_chunks().to_batches()[0])
        size = bad.num_rows
        wanted = [
            index
            for start in (0, 40 + size, 40 + 2 * size, 41 + 3 * size)
            for index in range(start, start + size)
        ]
        assert [row.index for row in named] == wanted
        assert all(isinstance(row, RefusedRow) and row.reason for row in named)
        assert list(writer.write_accepted(under.batch(range(51, 60)))) == []
        assert sorted(under.visible()) == list(range(10))
        committables = list(writer.prepare_commit())
        assert until_proved(driver_side.commit, committables) == [CommitOutcome.COMMITTED]
        assert sorted(under.visible()) == list(range(60))
        assert list(driver_side.list_lingering()) == []

    def test_an_attempt_of_refused_rows_alone_prepares_no_transaction(
        self, under: SinkUnderTest
    ) -> None:
        """And leaves nothing behind for a driver to abort."""
        driver_side, bad = _with_ten_rows(under), _refused(under)
        writer = _selective(under)(attempt(epoch=1))
        assert [row.index for row in writer.write_accepted(bad)] == list(range(bad.num_rows))
        assert list(writer.prepare_commit()) == []
        assert list(driver_side.list_lingering()) == []
        assert sorted(under.visible()) == list(range(10))


def _with_ten_rows(under: SinkUnderTest) -> Committer[Any]:
    """Commit rows 0 to 9 and return the committer."""
    driver_side = committer(under, driver())
    _, committables = write(under, attempt(), range(10))
    until_proved(driver_side.commit, committables)
    return driver_side


def _refused(under: SinkUnderTest) -> pa.RecordBatch:
    assert under.refused is not None, "give SinkUnderTest.refused"
    return under.refused()


def _selective(under: SinkUnderTest) -> Any:
    assert isinstance(under.sink, SelectiveSink), "give the sink create_selective_writer"
    return under.sink.create_selective_writer


class ServerConformance:
    """For a sink with a server of its own in each test. Needs `server`."""

    def test_prepared_rows_survive_kill_9_of_the_server(self, under: SinkUnderTest) -> None:
        """Committed or aborted by the server that comes back."""
        assert under.server is not None, "give SinkUnderTest.server"
        driver_side = committer(under, driver())
        _, kept = write(under, attempt(), range(10))
        _, dropped = write(under, attempt(partition=1), range(10, 20))
        under.server.kill()
        under.server.restart()
        assert until_proved(driver_side.commit, kept) == [CommitOutcome.COMMITTED]
        assert until_proved(driver_side.abort, dropped) == [AbortOutcome.ABORTED]
        assert sorted(under.visible()) == list(range(10))


_each_side = pytest.mark.parametrize("side", ["request", "reply"])


class LineConformance:
    """For a sink that speaks to its server by TCP: cuts the line at each request and at each reply,
    one after the other. Needs `line`."""

    @_each_side
    def test_a_commit_whose_line_is_cut_is_proved(self, under: SinkUnderTest, side: Side) -> None:
        """The next call tells whether it was executed, and each row is there once."""
        committer(under, driver()).close()
        expected: list[int] = []
        for epoch, sink in cut_lines(under, side):
            numbers = range(10 * epoch, 10 * epoch + 10)
            _, committables = write(under, attempt(epoch=epoch), numbers)
            driver_side = sink.create_committer(driver())
            assert set(until_proved(driver_side.commit, committables)) <= DONE
            assert until_proved(driver_side.commit, committables) == [
                CommitOutcome.ALREADY_COMMITTED
            ]
            driver_side.close()
            expected += numbers
            assert sorted(under.visible()) == expected

    @_each_side
    def test_an_abort_whose_line_is_cut_is_proved(self, under: SinkUnderTest, side: Side) -> None:
        """And holds: a later commit finds the rows lost."""
        committer(under, driver()).close()
        for epoch, sink in cut_lines(under, side):
            _, committables = write(under, attempt(epoch=epoch), range(10))
            driver_side = sink.create_committer(driver())
            assert until_proved(driver_side.abort, committables) == [AbortOutcome.ABORTED]
            assert until_proved(driver_side.commit, committables) == [under.gone]
            driver_side.close()
        assert under.visible() == []

    @_each_side
    def test_an_attempt_whose_line_is_cut_leaves_nothing_unknown(
        self, under: SinkUnderTest, side: Side
    ) -> None:
        """Either it fails, and the rest of it is listed and aborted; or it survives the cut."""
        direct = committer(under, driver())
        expected: list[int] = []
        for epoch, sink in cut_lines(under, side):
            numbers = range(10 * epoch, 10 * epoch + 10)
            writer = sink.create_writer(attempt(epoch=epoch))
            try:
                writer.write(under.batch(numbers))
                committables = list(writer.prepare_commit())
            except Exception:
                writer.abort()
                left = [lingering.committable for lingering in direct.list_lingering()]
                assert set(until_proved(direct.abort, left)) <= {AbortOutcome.ABORTED}
            else:
                assert until_proved(direct.commit, committables) == [CommitOutcome.COMMITTED]
                expected += numbers
            assert list(direct.list_lingering()) == []
            assert sorted(under.visible()) == expected
        assert expected, "not one attempt has gone through"
        direct.close()

"""What some sinks can be asked besides `suite.py`; each class says which."""

from __future__ import annotations

import time

import pytest

from tidemark.contracts.sink import AbortOutcome, CommitOutcome
from tidemark.model.errors import WriteRefusedError
from tidemark.verify.conformance.steps import (
    SinkUnderTest,
    attempt,
    committer,
    driver,
    until_proved,
    write,
)

AWAY_ANSWER_S = 60.0
"""A call at a server that is away must come back within this: nothing may hang an epoch."""


class ExpiryConformance:
    """For a system that drops a prepared transaction by itself, after a time. Needs `drop`."""

    def test_a_dropped_transaction_is_lost_and_said_to_be(self, under: SinkUnderTest) -> None:
        """The system timed it out: never a success, never a RETRY for ever."""
        assert under.drop is not None, "give SinkUnderTest.drop"
        driver_side = committer(under, driver())
        _, committables = write(under, attempt(), range(10))
        under.drop(committables[0])
        assert until_proved(driver_side.commit, committables) == [CommitOutcome.LOST]
        assert until_proved(driver_side.abort, committables) == [AbortOutcome.ABORTED]
        assert under.visible() == []


class RefusalConformance:
    """For a system that can refuse a row: a type, a constraint, a size. Needs `refused`."""

    def test_a_refused_row_fails_the_attempt_before_the_decision(
        self, under: SinkUnderTest
    ) -> None:
        """WriteRefusedError out of `write` or `prepare_commit`, and nothing of it visible."""
        assert under.refused is not None, "give SinkUnderTest.refused"
        driver_side = committer(under, driver())
        _, committables = write(under, attempt(), range(10))
        until_proved(driver_side.commit, committables)
        writer = under.sink.create_writer(attempt(epoch=1))
        with pytest.raises(WriteRefusedError):
            writer.write(under.refused())
            writer.prepare_commit()
        writer.abort()
        left = [found.committable for found in driver_side.list_lingering()]
        assert set(until_proved(driver_side.abort, left)) <= {AbortOutcome.ABORTED}
        assert sorted(under.visible()) == list(range(10))


class ServerConformance:
    """For a sink with a server of its own in each test. Needs `server`."""

    def test_prepared_rows_survive_kill_9_of_the_server(self, under: SinkUnderTest) -> None:
        """And while it is away, a commit and an abort answer RETRY, soon."""
        assert under.server is not None, "give SinkUnderTest.server"
        driver_side = committer(under, driver())
        _, kept = write(under, attempt(), range(10))
        _, dropped = write(under, attempt(partition=1), range(10, 20))
        under.server.kill()
        begun = time.monotonic()
        assert list(driver_side.commit(kept)) == [CommitOutcome.RETRY]
        assert list(driver_side.abort(dropped)) == [AbortOutcome.RETRY]
        assert time.monotonic() - begun < AWAY_ANSWER_S
        under.server.restart()
        assert until_proved(driver_side.commit, kept) == [CommitOutcome.COMMITTED]
        assert until_proved(driver_side.abort, dropped) == [AbortOutcome.ABORTED]
        assert sorted(under.visible()) == list(range(10))

    def test_a_server_that_is_away_fails_the_attempt(self, under: SinkUnderTest) -> None:
        """An exception within the sink's deadline; the next attempt writes the rows."""
        assert under.server is not None, "give SinkUnderTest.server"
        driver_side = committer(under, driver())
        writer = under.sink.create_writer(attempt())
        writer.write(under.batch(range(5)))
        under.server.kill()
        begun = time.monotonic()
        with pytest.raises(Exception):  # noqa: B017 - what it is, is the sink's
            writer.write(under.batch(range(5, 10)))
            writer.prepare_commit()
        writer.abort()
        assert time.monotonic() - begun < AWAY_ANSWER_S
        under.server.restart()
        left = [found.committable for found in driver_side.list_lingering()]
        assert set(until_proved(driver_side.abort, left)) <= {AbortOutcome.ABORTED}
        _, committables = write(under, attempt(attempt=1), range(10))
        assert until_proved(driver_side.commit, committables) == [CommitOutcome.COMMITTED]
        assert sorted(under.visible()) == list(range(10))

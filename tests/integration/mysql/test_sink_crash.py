"""The server is killed with SIGKILL, stopped or away in each phase; the sink goes on with the next.

How: a server of the test's own; writers and committers live through its death.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pymysql
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import AbortFailedError, PreflightError
from seamark.sinks.internal import servers
from seamark.sinks.mysql import committer as committers
from seamark.verify.conformance import ServerConformance, SinkUnderTest
from seamark.verify.conformance.steps import attempt, until_proved
from tests.integration.mysql.conftest import fresh_database, serving
from tests.integration.mysql.sink_kit import MODES, batch, sink_under_test, target_on
from tests.servers.mariadb import MariaDBServer


@pytest.fixture(scope="module")
def own_server() -> Iterator[MariaDBServer]:
    with serving() as server:
        yield server


@pytest.fixture
def own_database(own_server: MariaDBServer) -> Iterator[str]:
    with fresh_database(own_server) as name:
        yield name


class TestServer(ServerConformance):
    @pytest.fixture(params=MODES)
    def under(
        self, request: pytest.FixtureRequest, own_server: MariaDBServer, own_database: str
    ) -> SinkUnderTest:
        return sink_under_test(own_server, own_database, request.param)


@pytest.mark.parametrize("mode", ["xa", "staged"])
def test_killed_in_each_phase(own_server: MariaDBServer, own_database: str, mode: str) -> None:
    target = target_on(own_server, own_database, mode)
    committer = target.committer()

    # While a task writes: the attempt fails, and nothing of it can ever be seen.
    writer = target.sink.create_writer(attempt())
    writer.write(batch(range(1000)))
    own_server.restart()
    with pytest.raises((pymysql.MySQLError, OSError)):
        writer.prepare_commit()
    writer.abort()
    left = [found.committable for found in committer.list_lingering()]
    assert set(until_proved(committer.abort, left)) <= {AbortOutcome.ABORTED}
    assert target.visible() == []
    assert target.stages() == []

    # After the flush: prepared is durable, and still invisible.
    kept = target.write(range(10), attempt(epoch=1))
    undecided = target.write(range(100, 110), attempt(epoch=1, attempt=9))
    own_server.restart()
    assert target.visible() == []
    handles = {found.committable.handle for found in committer.list_lingering()}
    assert handles == {kept[0].handle, undecided[0].handle}

    # At the commit: away, then back.
    own_server.kill()
    assert committer.commit(kept) == [CommitOutcome.RETRY]
    assert committer.abort(undecided) == [AbortOutcome.RETRY]
    own_server.start()
    assert until_proved(committer.commit, kept) == [CommitOutcome.COMMITTED]

    # After the commit.
    own_server.restart()
    assert until_proved(committer.commit, kept) == [CommitOutcome.ALREADY_COMMITTED]
    assert until_proved(committer.abort, undecided) == [AbortOutcome.ABORTED]
    own_server.restart()
    assert until_proved(committer.commit, undecided) == [CommitOutcome.LOST]
    assert target.visible() == list(range(10))
    assert list(committer.list_lingering()) == []


def test_a_server_that_does_not_answer_is_asked_again(
    own_server: MariaDBServer, own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committers, "ANSWER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(servers, "LISTING_DEADLINE_S", 0.1)
    target = target_on(own_server, own_database)
    committer = target.committer()
    committables = target.write(range(10))
    own_server.pause()
    try:
        began = time.monotonic()
        assert committer.commit(committables) == [CommitOutcome.RETRY]
        assert committer.abort(committables) == [AbortOutcome.RETRY]
        with pytest.raises(AbortFailedError, match="could not be listed"):
            committer.list_lingering()
        assert time.monotonic() - began < 60
    finally:
        own_server.resume()
    # The server executes requests from during its standstill: it may be committed by now.
    assert until_proved(committer.commit, committables) != [CommitOutcome.RETRY]


def test_a_server_that_is_away_at_the_start(own_server: MariaDBServer, own_database: str) -> None:
    target = target_on(own_server, own_database)
    own_server.kill()
    try:
        with pytest.raises(PreflightError, match=r"no connection as user 'seamark'") as caught:
            target.committer()
        assert "s3cr3t" not in str(caught.value)
    finally:
        own_server.start()

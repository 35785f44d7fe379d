"""The server is killed with SIGKILL, stopped or away in each phase; the sink goes on with the next.

How: a server of the test's own; writers and committers live through its death.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import partial

import pymysql
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import PreflightError
from seamark.verify.conformance import (
    OutageConformance,
    ServerConformance,
    SinkConformance,
    SinkUnderTest,
)
from seamark.verify.conformance.steps import answered, attempt, lingering, until_proved
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


class TestOutages(OutageConformance):
    """Away, silent, without a login, and while another session holds every write up."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture(params=["xa", "staged"])
    def under(
        self, request: pytest.FixtureRequest, own_server: MariaDBServer, own_database: str
    ) -> SinkUnderTest:
        return self.made(request.param, own_server, own_database)

    def made(self, mode: str, own_server: MariaDBServer, own_database: str) -> SinkUnderTest:
        outages = {"locked": partial(locked, own_server), "no login": partial(shut, own_server)}
        made = sink_under_test(own_server, own_database, mode, timeout="1s")
        if mode == "staged":  # the lines are the same
            return dataclasses.replace(made, outages=outages, server=None, line=None)
        return dataclasses.replace(made, outages=outages)


class TestOutagesOfMySQL8(TestOutages):
    """MySQL 8 is killed. What else is tried on MariaDB would take a minute more."""

    @pytest.fixture(scope="class")
    @classmethod
    def own_mysql8(cls) -> Iterator[MariaDBServer]:
        with serving("mysql") as server:
            yield server

    @pytest.fixture
    def under(self, own_mysql8: MariaDBServer) -> Iterator[SinkUnderTest]:
        with fresh_database(own_mysql8) as database:
            yield dataclasses.replace(self.made("xa", own_mysql8, database), line=None, outages={})


@contextlib.contextmanager
def locked(server: MariaDBServer) -> Iterator[None]:
    with contextlib.closing(server.connect()) as other:
        other.cursor().execute("FLUSH TABLES WITH READ LOCK")
        yield


@contextlib.contextmanager
def shut(server: MariaDBServer) -> Iterator[None]:
    server.execute("ALTER USER seamark@'%' ACCOUNT LOCK")
    for (connection,) in server.execute(
        "SELECT id FROM information_schema.processlist WHERE user = 'seamark'"
    ):
        server.execute(f"KILL {connection}")
    yield
    server.execute("ALTER USER seamark@'%' ACCOUNT UNLOCK")


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
    left = [found.committable for found in lingering(committer)]
    assert set(until_proved(committer.abort, left)) <= {AbortOutcome.ABORTED}
    assert target.visible() == []
    assert target.stages() == []

    # After the flush: prepared is durable, and still invisible.
    kept = target.write(range(10), attempt(epoch=1))
    undecided = target.write(range(100, 110), attempt(epoch=1, attempt=9))
    own_server.restart()
    assert target.visible() == []
    handles = {found.committable.handle for found in lingering(committer)}
    assert handles == {kept[0].handle, undecided[0].handle}

    # At the commit: away, then back.
    own_server.kill()
    assert answered(committer.commit, kept, CommitOutcome.RETRY) == [CommitOutcome.RETRY]
    assert answered(committer.abort, undecided, AbortOutcome.RETRY) == [AbortOutcome.RETRY]
    own_server.start()
    assert until_proved(committer.commit, kept) == [CommitOutcome.COMMITTED]

    # After the commit.
    own_server.restart()
    assert until_proved(committer.commit, kept) == [CommitOutcome.ALREADY_COMMITTED]
    assert until_proved(committer.abort, undecided) == [AbortOutcome.ABORTED]
    own_server.restart()
    assert until_proved(committer.commit, undecided) == [CommitOutcome.LOST]
    assert target.visible() == list(range(10))
    assert lingering(committer) == []


def test_a_server_that_is_away_at_the_start(own_server: MariaDBServer, own_database: str) -> None:
    target = target_on(own_server, own_database)
    own_server.kill()
    try:
        with pytest.raises(PreflightError, match=r"no connection as user 'seamark'") as caught:
            target.committer()
        assert "s3cr3t" not in str(caught.value)
    finally:
        own_server.start()

"""The server is killed with -9, stopped or away in each phase; it recovers from its own log.

How: one server of this module's own, free to die; the surviving rows are read afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from functools import partial

import psycopg
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import PreCommitError, PreflightError
from seamark.model.findings import FindingCode, Severity
from seamark.sinks.postgres import PostgresSink
from seamark.verify.conformance import (
    OutageConformance,
    ServerConformance,
    SinkConformance,
    SinkUnderTest,
)
from seamark.verify.conformance.steps import answered
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    # Nothing reaches the disk in time by chance, without a flush on purpose.
    with PostgresServer({"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture
def schema(mortal: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(mortal) as name:
        mortal.execute(f"CREATE TABLE {name}.orders (id bigint PRIMARY KEY, text text)")
        yield name


class TestServer(ServerConformance):
    @pytest.fixture(params=kit.MODES)
    def under(
        self, request: pytest.FixtureRequest, mortal: PostgresServer
    ) -> Iterator[SinkUnderTest]:
        with kit.sink_under_test(mortal, request.param) as made:
            yield made


class TestOutages(OutageConformance):
    """Away, silent, taking no connections; and while another session holds the table."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture(params=["prepared", "staged"])
    def under(
        self, request: pytest.FixtureRequest, mortal: PostgresServer
    ) -> Iterator[SinkUnderTest]:
        with kit.sink_under_test(mortal, request.param, timeout="1s") as made:
            outages = {"shut": partial(shut, mortal)}
            if request.param == "staged":  # the lines are the same
                outages["locked"] = partial(locked, mortal, made.sink.sql_name)  # type: ignore[attr-defined]
                made = dataclasses.replace(made, server=None, line=None)
            yield dataclasses.replace(made, outages=outages)


@contextlib.contextmanager
def shut(server: PostgresServer) -> Iterator[None]:
    with psycopg.connect(server.url(database="template1"), autocommit=True) as other:
        other.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS false")
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                      "WHERE datname = 'postgres'")  # fmt: skip
        yield
        other.execute("ALTER DATABASE postgres ALLOW_CONNECTIONS true")


@contextlib.contextmanager
def locked(server: PostgresServer, table: str) -> Iterator[None]:
    with server.connect() as other, other.transaction():
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


@pytest.mark.parametrize("mode", kit.MODES)
def test_a_server_killed_in_each_phase(mortal: PostgresServer, schema: str, mode: str) -> None:
    sink = kit.sink_on(mortal, schema, mode)
    committer = sink.create_committer(kit.driver())
    committer.preflight()
    mortal.execute(f"CREATE UNLOGGED TABLE {schema}.unlogged AS SELECT 1 AS id")
    # A role without synchronous commits: flushed rows must be durable all the same.
    mortal.execute("ALTER ROLE postgres SET synchronous_commit = off")

    half = sink.create_writer(kit.attempt(partition=9))
    half.write(kit.numbers(range(100, 200)))
    kept = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
    dropped = kit.write(sink, kit.attempt(partition=1), kit.numbers(range(5, 9)))
    mortal.kill()

    with pytest.raises(PreCommitError):  # writing, and the server is away
        half.prepare_commit()
    half.abort()
    begun = time.monotonic()
    assert answered(committer.commit, kept, CommitOutcome.RETRY) == [CommitOutcome.RETRY]
    assert answered(committer.abort, dropped, AbortOutcome.RETRY) == [AbortOutcome.RETRY]
    with pytest.raises(psycopg.OperationalError):
        list(committer.list_lingering())
    with pytest.raises(PreflightError, match="that the server runs"):
        sink.create_committer(kit.driver()).preflight()
    assert time.monotonic() - begun < 60

    mortal.start()
    # Why a stage table is a logged one: this is the fate of the other kind.
    assert mortal.execute(f"SELECT count(*) FROM {schema}.unlogged") == [(0,)]
    left = {found.committable.handle for found in committer.list_lingering()}
    assert left == {kept[0].handle, dropped[0].handle}
    assert kit.visible(mortal, schema) == []
    assert list(committer.abort(dropped)) == [AbortOutcome.ABORTED]
    assert list(committer.commit(kept)) == [CommitOutcome.COMMITTED]

    mortal.restart()
    assert answered(committer.commit, [*kept, *dropped], CommitOutcome.RETRY) == [
        # The connection was the old server's; now it is a new one.
        CommitOutcome.RETRY,
        CommitOutcome.RETRY,
    ]
    assert list(committer.commit([*kept, *dropped])) == [
        CommitOutcome.ALREADY_COMMITTED,
        CommitOutcome.LOST,
    ]
    assert list(committer.abort(dropped)) == [AbortOutcome.ABORTED]
    assert kit.visible(mortal, schema) == list(range(5))
    mortal.execute("ALTER ROLE postgres RESET synchronous_commit")
    committer.close()


def test_a_server_that_can_prepare_none_or_no_more(mortal: PostgresServer, schema: str) -> None:
    prepared, staged = (kit.sink_on(mortal, schema, mode) for mode in ("prepared", "staged"))
    try:
        # A server cannot replay more of them than it may have: let it begin after the last one.
        mortal.execute("CHECKPOINT")
        mortal.restart(max_prepared_transactions="0")
        with pytest.raises(PreflightError, match="max_prepared_transactions is 0") as caught:
            prepared.create_committer(kit.driver()).preflight()
        assert caught.value.finding is not None
        assert caught.value.finding.code is FindingCode.PG001
        for remedy in ("ALTER SYSTEM SET max_prepared_transactions", 'mode="staged"'):
            assert remedy in str(caught.value)
        committer = staged.create_committer(kit.driver())
        committer.preflight()
        committables = kit.write(staged, kit.attempt(), kit.numbers(range(5)))
        assert list(committer.commit(committables)) == [CommitOutcome.COMMITTED]
        committer.close()
        # As the page's first line has it: it makes the table, and is not told of a quicker mode.
        stock = PostgresSink(mortal.url(), f"{schema}.made")
        assert [found.code.name for found in stock.inspect(kit.driver())] == []
        committer = stock.create_committer(kit.driver())
        committer.preflight()
        committables = kit.write(stock, kit.attempt(), kit.numbers(range(5)))
        assert list(committer.commit(committables)) == [CommitOutcome.COMMITTED]
        assert mortal.execute(f"SELECT count(*) FROM {schema}.made") == [(5,)]
        committer.close()

        mortal.restart(max_prepared_transactions="1")
        context = dataclasses.replace(kit.driver(), tasks=1, open_epochs=1)
        (noted,) = stock.inspect(context)
        assert (noted.code, noted.weight) == (FindingCode.SV008, Severity.NOTE)
        assert list(stock.inspect(dataclasses.replace(context, tasks=2))) == []
        kit.write(prepared, kit.attempt(1), kit.numbers([10]))
        with pytest.raises(PreCommitError, match=r"53200.*raise max_prepared_transactions"):
            kit.write(prepared, kit.attempt(1, 1), kit.numbers([11]))
        committer = prepared.create_committer(kit.driver())
        assert len(list(committer.list_lingering())) == 1
        committer.close()
    finally:
        with mortal.connect() as connection:
            for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
                connection.execute(f"ROLLBACK PREPARED '{gid}'")
        mortal.restart(max_prepared_transactions="100")

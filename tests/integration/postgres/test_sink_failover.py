"""A prepared transaction after a failover, or at another server: its number may be anybody's.

How: a real primary with a streaming standby, cut off before the PREPARE or behind it, and promoted;
other clients use the numbers up.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from seamark.contracts.committables import dump_committable
from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.sinks.postgres.committable import PostgresCommittable
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer, Standby


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as name:
        postgres.execute(f"CREATE TABLE {name}.orders (id bigint, text text)")
        yield name


def committer_on(server: PostgresServer, schema: str) -> Any:
    """Return a committer of the next driver, which reaches `server`."""
    return kit.sink_on(server, schema).create_committer(kit.driver(2))


def use_up(server: PostgresServer, xid: int) -> None:
    """Let another client commit transactions until one had this number."""
    with server.connect() as client:
        while int(client.execute("SELECT pg_current_xact_id()::text").fetchone()[0]) < xid:
            pass


def test_a_standby_without_the_transaction(postgres: PostgresServer, schema: str) -> None:
    with Standby(postgres) as standby:
        standby.kill()
        (committable,) = kit.write(
            kit.sink_on(postgres, schema), kit.attempt(), kit.numbers(range(5))
        )
        standby.start(primary_conninfo="host=127.0.0.1 port=1")
        standby.promote()
        committer = committer_on(standby, schema)
        # No transaction has had its number: it is not there, and may be written again.
        assert list(committer.commit([committable])) == [CommitOutcome.LOST]
        use_up(standby, committable.xid)
        assert list(committer.commit([committable])) == [CommitOutcome.UNKNOWN]
        assert list(committer.abort([committable])) == [AbortOutcome.ABORTED]
        assert kit.visible(standby, schema) == []
        committer.close()
        # The old primary has it, and came by the number itself.
        committer = committer_on(postgres, schema)
        assert list(committer.commit([committable])) == [CommitOutcome.COMMITTED]
        assert list(committer.commit([committable])) == [CommitOutcome.ALREADY_COMMITTED]
        committer.close()


def test_a_standby_with_the_transaction(postgres: PostgresServer, schema: str) -> None:
    """One still open is committed by its name. Of one that was committed just before the failover
    nothing proves that the number is its own."""
    sink = kit.sink_on(postgres, schema)
    with Standby(postgres) as standby:
        (open_,) = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
        (ended,) = kit.write(sink, kit.attempt(partition=1), kit.numbers(range(5, 9)))
        (aborted,) = kit.write(sink, kit.attempt(partition=2), kit.numbers([100]))
        before = committer_on(postgres, schema)
        assert list(before.commit([ended])) == [CommitOutcome.COMMITTED]
        assert list(before.abort([aborted])) == [AbortOutcome.ABORTED]
        before.close()
        ((reached,),) = postgres.execute("SELECT pg_current_wal_lsn()")
        deadline = time.monotonic() + 60
        while standby.execute(f"SELECT pg_last_wal_replay_lsn() < '{reached}'") != [(False,)]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        standby.promote()
        committer = committer_on(standby, schema)
        assert list(committer.commit([open_, ended, aborted])) == [
            CommitOutcome.COMMITTED, CommitOutcome.UNKNOWN, CommitOutcome.LOST,
        ]  # fmt: skip
        assert kit.visible(standby, schema) == list(range(9))
        # A transaction of the new timeline; and the old primary, if somebody gives its address.
        (later,) = kit.write(kit.sink_on(standby, schema), kit.attempt(1), kit.numbers([9]))
        assert list(committer.commit([later])) == [CommitOutcome.COMMITTED]
        assert list(committer.commit([later])) == [CommitOutcome.ALREADY_COMMITTED]
        committer.close()
        committer = committer_on(postgres, schema)
        assert list(committer.commit([later])) == [CommitOutcome.UNKNOWN]
        committer.close()


def test_another_cluster(
    postgres: PostgresServer, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    (committable,) = kit.write(kit.sink_on(postgres, schema), kit.attempt(), kit.numbers(range(5)))
    with PostgresServer() as other:
        committer = committer_on(other, schema)
        ahead = dataclasses.replace(committable, xid=10**9)
        assert list(committer.commit([ahead])) == [CommitOutcome.UNKNOWN]
        use_up(other, committable.xid)
        assert list(committer.commit([committable])) == [CommitOutcome.UNKNOWN]
        assert f"the table has 5 rows with xmin {committable.xid}" in caplog.text
        committer.close()


def test_a_committable_of_an_older_release_is_read(postgres: PostgresServer, schema: str) -> None:
    sink = kit.sink_on(postgres, schema)
    (committable,) = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
    fields = dataclasses.asdict(committable)
    assert fields.pop("system") > 0 < fields.pop("timeline")
    older = dataclasses.make_dataclass("Older", fields)(**fields)
    read = sink.load(dump_committable(older))
    assert read == PostgresCommittable(**fields)
    assert json.loads(sink.dump(read).split(b" ", 2)[2])["system"] == 0
    committer = committer_on(postgres, schema)
    assert list(committer.commit([read])) == [CommitOutcome.COMMITTED]
    assert list(committer.commit([read])) == [CommitOutcome.ALREADY_COMMITTED]
    committer.close()


def test_a_server_that_does_not_tell_its_history(postgres: PostgresServer, schema: str) -> None:
    """The number alone is asked for, as of an older release's transaction."""
    asked = "EXECUTE ON FUNCTION pg_control_system()"
    postgres.execute(f"CREATE ROLE managed LOGIN; REVOKE {asked} FROM PUBLIC")
    postgres.execute(f"GRANT ALL ON SCHEMA {schema} TO managed")
    postgres.execute(f"GRANT ALL ON {schema}.orders TO managed")
    try:
        sink = kit.sink_on(postgres, schema, url=postgres.url("managed"))
        (committable,) = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
        assert (committable.system, committable.timeline) == (0, 0)
        committer = sink.create_committer(kit.driver(2))
        assert list(committer.commit([committable])) == [CommitOutcome.COMMITTED]
        assert list(committer.commit([committable])) == [CommitOutcome.ALREADY_COMMITTED]
        committer.close()
        assert kit.visible(postgres, schema) == list(range(5))
    finally:
        postgres.execute(f"GRANT {asked} TO PUBLIC; DROP OWNED BY managed; DROP ROLE managed")

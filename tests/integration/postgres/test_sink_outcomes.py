"""PostgreSQL's answers at the end of a transaction, and the sink's conclusions.

How: a real server, asked by the sink and, beside it, by hand; lost replies by a proxy, cutting the
line after the server has executed the request.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import CommitFailedError, PreCommitError, WriteRefusedError
from seamark.sinks.postgres import prepared, writer
from seamark.sinks.postgres.committable import PostgresCommittable
from seamark.verify.conformance import CuttingProxy
from seamark.verify.conformance.steps import answered
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as name:
        postgres.execute(f"CREATE TABLE {name}.orders (id bigint PRIMARY KEY, text text)")
        for mode in kit.MODES:
            ready(kit.sink_on(postgres, name, mode)).close()
        yield name


def ready(sink: Any, generation: int = 1) -> Any:
    committer = sink.create_committer(kit.driver(generation))
    committer.preflight()
    return committer


@pytest.mark.parametrize("mode", kit.MODES)
def test_a_commit_whose_reply_is_lost_is_asked_again_and_proved(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    with CuttingProxy("127.0.0.1", postgres.port) as proxy:
        sink = kit.sink_on(postgres, schema, mode, url=postgres.url(port=proxy.port))
        committer = ready(sink)
        committables = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
        proxy.lose_reply_to(b"COMMIT")
        assert answered(committer.commit, committables, CommitOutcome.RETRY) == [
            CommitOutcome.RETRY
        ]
        assert proxy.cuts == 1
        assert kit.visible(postgres, schema) == list(range(5))
        assert list(committer.commit(committables)) == [CommitOutcome.ALREADY_COMMITTED]
        assert list(committer.abort(committables)) == [AbortOutcome.COMMITTED]
        assert kit.visible(postgres, schema) == list(range(5))
        committer.close()


@pytest.mark.parametrize("mode", kit.MODES)
def test_an_abort_whose_reply_is_lost_is_asked_again_and_proved(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    with CuttingProxy("127.0.0.1", postgres.port) as proxy:
        sink = kit.sink_on(postgres, schema, mode, url=postgres.url(port=proxy.port))
        committer = ready(sink)
        committables = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
        proxy.lose_reply_to(b"ROLLBACK PREPARED" if mode == "prepared" else b"COMMIT")
        assert answered(committer.abort, committables, AbortOutcome.RETRY) == [AbortOutcome.RETRY]
        assert proxy.cuts == 1
        assert list(committer.abort(committables)) == [AbortOutcome.ABORTED]
        assert list(committer.commit(committables)) == [CommitOutcome.LOST]
        assert kit.visible(postgres, schema) == []
        committer.close()


@pytest.mark.parametrize("mode", kit.MODES)
def test_a_flush_whose_reply_is_lost_fails_its_attempt_and_lingers(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    with CuttingProxy("127.0.0.1", postgres.port) as proxy:
        sink = kit.sink_on(postgres, schema, mode, url=postgres.url(port=proxy.port))
        attempt = sink.create_writer(kit.attempt(epoch=3))
        attempt.write(kit.numbers(range(5)))
        proxy.lose_reply_to(b"PREPARE TRANSACTION" if mode == "prepared" else b"COMMIT")
        with pytest.raises(PreCommitError, match=r"orders"):
            attempt.prepare_commit()
        assert proxy.cuts == 1
    successor = kit.sink_on(postgres, schema, mode).create_committer(kit.driver(2))
    (left,) = successor.list_lingering()
    assert (left.generation, left.committable.epoch) == (1, 3)
    assert list(successor.abort([left.committable])) == [AbortOutcome.ABORTED]
    assert list(successor.list_lingering()) == []
    assert kit.visible(postgres, schema) == []
    successor.close()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("mode", ["staged", "upsert"])
def test_a_role_with_another_isolation(
    postgres: PostgresServer, schema: str, mode: str, level: str
) -> None:
    """In its own isolation, a commit that waits for a row of the ledger would fail."""
    postgres.execute(f"ALTER ROLE postgres SET default_transaction_isolation = '{level}'")
    try:
        sink = kit.sink_on(postgres, schema, mode)
        committer = ready(sink)
        staged = kit.write(sink, kit.attempt(), kit.numbers([1]))
        with postgres.connect() as other:
            other.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            other.execute(f"UPDATE {schema}._seamark_ledger SET rows = rows")
            end = threading.Timer(1, lambda: other.execute("COMMIT"))
            end.start()
            assert list(committer.commit(staged)) == [CommitOutcome.COMMITTED]
            end.join()
        committer.close()
    finally:
        postgres.execute("ALTER ROLE postgres RESET default_transaction_isolation")
    assert kit.visible(postgres, schema) == [1]


def test_an_attempt_whose_prepare_was_not_answered_frees_its_locks(
    postgres: PostgresServer, schema: str
) -> None:
    """When the task gives up: its retry would wait for them."""
    with CuttingProxy("127.0.0.1", postgres.port) as proxy:
        sink = kit.sink_on(postgres, schema, "prepared", url=postgres.url(port=proxy.port))
        attempt = sink.create_writer(kit.attempt(epoch=3))
        attempt.write(kit.numbers(range(5)))
        proxy.lose_reply_to(b"PREPARE TRANSACTION")
        with pytest.raises(PreCommitError, match=r"orders"):
            attempt.prepare_commit()
        attempt.abort()
    successor = kit.sink_on(postgres, schema, "prepared").create_committer(kit.driver(2))
    assert list(successor.list_lingering()) == []
    successor.close()


def test_a_transaction_that_another_connection_is_ending_is_asked_for_again(
    postgres: PostgresServer, schema: str
) -> None:
    # A missing standby holds a COMMIT PREPARED up, with the transaction locked.
    sink = kit.sink_on(postgres, schema)
    committer = ready(sink)
    (committable,) = kit.write(sink, kit.attempt(), kit.numbers(range(5)))

    def replication(name: str) -> None:
        postgres.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        postgres.execute("SELECT pg_reload_conf()")

    def commit() -> None:
        with contextlib.suppress(psycopg.Error):
            postgres.execute(f"COMMIT PREPARED '{committable.handle}'")

    replication("nowhere")
    busy = threading.Thread(target=commit)
    try:
        time.sleep(0.2)  # until every process has read its configuration again
        busy.start()
        deadline = time.monotonic() + 30
        while not postgres.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            postgres.execute(f"COMMIT PREPARED '{committable.handle}'")
        assert list(committer.commit([committable])) == [CommitOutcome.RETRY]
        assert list(committer.abort([committable])) == [AbortOutcome.RETRY]
    finally:
        replication("")
        busy.join(30)
    assert list(committer.commit([committable])) == [CommitOutcome.ALREADY_COMMITTED]
    committer.close()


def test_an_unknown_transaction_is_judged_by_its_id(postgres: PostgresServer, schema: str) -> None:
    sink = kit.sink_on(postgres, schema)
    committer = ready(sink)

    def gone(xid: int) -> list[PostgresCommittable]:
        return [PostgresCommittable("seamark:j:s:g1", kit.JOB, kit.UID, 1, 0, 5, xid)]

    with postgres.connect() as running:
        running.execute("BEGIN")
        xid = int(running.execute("SELECT pg_current_xact_id()::text").fetchone()[0])
        assert list(committer.commit(gone(xid))) == [CommitOutcome.RETRY], "in progress"
        running.execute("COMMIT")
    assert list(committer.commit(gone(xid))) == [CommitOutcome.ALREADY_COMMITTED]
    # Before the first transaction that the server remembers, and after the last one: a server that
    # was set back to an older state.
    assert list(committer.commit(gone(3))) == [CommitOutcome.UNKNOWN]
    assert list(committer.abort(gone(3))) == [AbortOutcome.RETRY]
    assert list(committer.commit(gone(xid + 10**6))) == [CommitOutcome.LOST]
    assert list(committer.abort(gone(xid + 10**6))) == [AbortOutcome.ABORTED]
    committer.close()


def test_a_prepare_that_rolls_back_without_an_error_is_seen(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = kit.sink_on(postgres, schema).create_writer(kit.attempt())
    attempt.write(kit.numbers(range(5)))
    real = prepared.gid

    def fail_first(*arguments: Any) -> str:
        with contextlib.suppress(psycopg.Error):
            attempt._connection.execute("SELECT 1/0")
        return real(*arguments)

    monkeypatch.setattr(prepared, "gid", fail_first)
    with pytest.raises(PreCommitError, match="PREPARE TRANSACTION answers 'ROLLBACK'"):
        attempt.prepare_commit()
    attempt.abort()
    assert list(kit.sink_on(postgres, schema).create_committer(kit.driver()).list_lingering()) == []


def test_a_gid_in_use_is_refused(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = kit.sink_on(postgres, schema)
    (first,) = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
    monkeypatch.setattr(prepared, "gid", lambda *_: first.handle)
    with pytest.raises(WriteRefusedError, match="42710"):
        kit.write(sink, kit.attempt(), kit.numbers(range(5, 9)))
    assert list(ready(sink).commit([first])) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == list(range(5))


def test_prepared_rows_hold_their_locks_and_a_stage_does_not(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BEGIN", writer.BEGIN.replace("'10s'", "'200ms'"))
    sink = kit.sink_on(postgres, schema)
    first = sink.create_writer(kit.attempt())
    first.write(kit.numbers(range(5)))
    first.prepare_commit()
    with pytest.raises(PreCommitError, match=r"55P03.*mode='staged' never waits"):
        kit.write(sink, kit.attempt(number=1), kit.numbers(range(5)))
    staged = kit.sink_on(postgres, schema, "staged")
    assert len(kit.write(staged, kit.attempt(number=2), kit.numbers(range(5)))) == 1
    first.abort()  # it gives up, also after its flush, and its locks are free
    assert len(kit.write(sink, kit.attempt(number=3), kit.numbers(range(5)))) == 1


def test_another_database_or_role_cannot_end_it_and_says_so(
    postgres: PostgresServer, schema: str
) -> None:
    sink = kit.sink_on(postgres, schema)
    (committable,) = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
    postgres.execute("CREATE ROLE stranger LOGIN")
    strangers = dataclasses.replace(sink, url=postgres.url("stranger")).create_committer(
        kit.driver()
    )
    with pytest.raises(CommitFailedError, match=r"42501.*Nothing is lost"):
        strangers.commit([committable])
    elsewhere = dataclasses.replace(sink, url=postgres.url(database="template1"))
    committer = elsewhere.create_committer(kit.driver())
    assert list(committer.list_lingering()) == []
    with pytest.raises(CommitFailedError, match="another database"):
        committer.commit([committable])
    strangers.close()
    committer.close()
    assert list(ready(sink).commit([committable])) == [CommitOutcome.COMMITTED]


def test_a_change_of_mode_still_ends_what_was_left(postgres: PostgresServer, schema: str) -> None:
    left = []
    for partition, mode in enumerate(kit.MODES):
        values = range(10 * partition, 10 * partition + 5)
        sink = kit.sink_on(postgres, schema, mode)
        left += kit.write(sink, kit.attempt(4, partition), kit.numbers(values))
    for mode in kit.MODES:
        committer = ready(kit.sink_on(postgres, schema, mode), 2)
        found = {lingering.committable.handle for lingering in committer.list_lingering()}
        assert found == {committable.handle for committable in left}
        committer.close()
    assert list(committer.commit(left)) == [CommitOutcome.COMMITTED] * 3
    assert kit.visible(postgres, schema) == [*range(5), *range(10, 15), *range(20, 25)]


@pytest.mark.parametrize("mode", ["prepared", "staged"])
def test_time_outs_of_the_role_do_not_end_a_slow_epoch(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    sink = kit.sink_on(postgres, schema, mode)
    names = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
    postgres.execute("CREATE ROLE hasty LOGIN SUPERUSER")
    for name in names:
        postgres.execute(f"ALTER ROLE hasty SET {name} = '200ms'")
    try:
        hasty = dataclasses.replace(sink, url=postgres.url("hasty"))
        slow = hasty.create_writer(kit.attempt())
        slow.write(kit.numbers([1]))
        time.sleep(0.5)
        slow.write(kit.numbers([2]))
        committer = ready(hasty)
        assert list(committer.commit(slow.prepare_commit())) == [CommitOutcome.COMMITTED]
        committer.close()
    finally:
        postgres.execute("DROP OWNED BY hasty")
        postgres.execute("DROP ROLE hasty")
    assert kit.visible(postgres, schema) == [1, 2]


# --- stages


@pytest.mark.parametrize("damage", ["DROP TABLE", "DELETE FROM"])
def test_a_stage_without_its_rows_is_lost(
    postgres: PostgresServer, schema: str, damage: str
) -> None:
    sink = kit.sink_on(postgres, schema, "staged")
    committer = ready(sink)
    whole = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
    gone = kit.write(sink, kit.attempt(partition=1), kit.numbers(range(5, 9)))
    postgres.execute(f'{damage} {schema}."{gone[0].stage}"')
    outcomes = list(committer.commit([*gone, *whole]))
    assert outcomes == [CommitOutcome.LOST, CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == list(range(5))


def test_a_move_that_is_cut_names_the_setting(postgres: PostgresServer, schema: str) -> None:
    sink = kit.sink_on(postgres, schema, "staged", timeout="1s")
    committer = ready(sink)
    committables = kit.write(sink, kit.attempt(), kit.numbers([1]))
    with postgres.connect() as other, other.transaction():
        other.execute(f"LOCK TABLE {schema}.orders")
        with pytest.raises(psycopg.OperationalError, match=r"1\.0002 s; .*timeout="):
            committer.commit(committables)
    assert list(committer.commit(committables)) == [CommitOutcome.COMMITTED]


def test_rows_that_the_target_refuses_after_the_decision_wait_for_its_mending(
    postgres: PostgresServer, schema: str
) -> None:
    sink = kit.sink_on(postgres, schema, "staged")
    committer = ready(sink)
    committables = kit.write(sink, kit.attempt(), kit.numbers(range(5)))
    postgres.execute(f"INSERT INTO {schema}.orders VALUES (3, 'in the way')")
    with pytest.raises(CommitFailedError, match=r"23505.*Nothing is lost"):
        committer.commit(committables)
    assert kit.visible(postgres, schema) == [3]
    postgres.execute(f"DELETE FROM {schema}.orders")
    assert list(committer.commit(committables)) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == list(range(5))


def test_an_upsert_is_applied_once_and_never_jumps_back(
    postgres: PostgresServer, schema: str
) -> None:
    sink = kit.sink_on(postgres, schema, "upsert")
    old, new = ready(sink, 1), ready(sink, 2)
    first = kit.write(
        sink, kit.attempt(1), kit.numbers([1, 2], "older"), kit.numbers([2, 2, 3], "first")
    )
    assert list(new.commit(first)) == [CommitOutcome.COMMITTED]
    second = kit.write(sink, kit.attempt(2, generation=2), kit.numbers([2], "second"))
    assert list(new.commit(second)) == [CommitOutcome.COMMITTED]
    # A fenced driver wakes up and commits its decision: the newer row stays.
    assert list(old.commit(first)) == [CommitOutcome.ALREADY_COMMITTED]
    rows = postgres.execute(f"SELECT id, text FROM {schema}.orders ORDER BY id")
    assert rows == [(1, "older 1"), (2, "second 2"), (3, "first 3")]


def test_the_ledger_forgets_old_epochs_and_leaves_no_stage(
    postgres: PostgresServer, schema: str
) -> None:
    sink = kit.sink_on(postgres, schema, "staged")
    committer = ready(sink)
    kit.write(sink, kit.attempt(1), kit.numbers([100]))  # lingers
    for epoch in (1, 2, 1500):
        committer.commit(kit.write(sink, kit.attempt(epoch), kit.numbers([epoch])))
    rows = postgres.execute(
        f"SELECT epoch, outcome FROM {schema}._seamark_ledger ORDER BY epoch, outcome"
    )
    assert rows == [(1, "staged"), (1500, "committed")]
    (stages,) = postgres.execute(
        f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}' "
        "AND starts_with(tablename, '_seamark_stage_')"
    )
    assert stages == (1,)

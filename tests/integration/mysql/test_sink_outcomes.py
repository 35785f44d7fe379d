"""The meaning of the server's error numbers: each way to 1397 (XAER_NOTA), and every lost reply.

How: real transactions, ended by hand or by other connections while the committer asks; a proxy cuts
the line after the server has executed a statement.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.errors import PreCommitError, WriteRefusedError
from seamark.sinks.internal.outcomes import LEDGER_EPOCHS
from seamark.sinks.mysql import ledger
from seamark.sinks.mysql.committable import MySQLCommittable, new_name
from seamark.sinks.mysql.connection import rows
from seamark.sinks.mysql.table import version_of
from seamark.verify.conformance import CuttingProxy
from seamark.verify.conformance.steps import answered, attempt, until_proved
from tests.integration.mysql.sink_kit import Target, all_prepared, batch, end_prepared, target_on
from tests.servers.mariadb import MariaDBServer

COMMITTED, ALREADY, RETRY, LOST = (
    CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED, CommitOutcome.RETRY,
    CommitOutcome.LOST,
)  # fmt: skip


@pytest.fixture
def target(mariadb: MariaDBServer, database: str) -> Target:
    return target_on(mariadb, database)


@pytest.fixture
def proxied(mariadb: MariaDBServer, database: str) -> Iterator[tuple[CuttingProxy, Any]]:
    """A proxy, and a function to make a target with its sink behind it."""
    with CuttingProxy("127.0.0.1", mariadb.port) as proxy:
        yield proxy, lambda mode: target_on(mariadb, database, mode, port=proxy.port)


def prepared_by_hand(target: Target) -> tuple[Any, MySQLCommittable]:
    """Return a connection still owning a prepared transaction, and its committable."""
    name = new_name(attempt())
    owner = target.server.connect(database=target.database)
    for sql in (f"XA START {name.xid}", "INSERT INTO orders VALUES (7, 'row 7')"):
        owner.query(sql)
    ledger.record(owner, target.database, name, 1, "committed")
    for sql in (f"XA END {name.xid}", f"XA PREPARE {name.xid}"):
        owner.query(sql)
    return owner, MySQLCommittable(str(name), "xa", target.database, rows=1)


def test_1397_while_the_preparing_connection_is_open(target: Target) -> None:
    """Nothing is decided: no LOST, no ABORTED, and no tombstone to stop the commit."""
    committer = target.committer()
    owner, committable = prepared_by_hand(target)
    ((version,),) = target.execute("SELECT @@version")
    if "mariadb" in version.lower() or version_of(version) < (8, 0, 29):
        assert committer.commit([committable]) == [RETRY]
        assert committer.abort([committable]) == [AbortOutcome.RETRY]
        owner.close()
    # Else it is its connection's no more: anybody may end it.
    assert until_proved(committer.commit, [committable]) == [COMMITTED]
    assert target.visible() == [7]


def test_1397_of_a_transaction_that_another_commits_at_this_moment(target: Target) -> None:
    committers = [target.committer(), target.committer()]
    for epoch in range(10):
        (committable,) = target.write([epoch], attempt(epoch=epoch))
        start = threading.Barrier(2)
        outcomes: list[CommitOutcome] = []

        def commit(committer: Any, start=start, item=committable, outcomes=outcomes) -> None:
            start.wait()
            outcomes.append(until_proved(committer.commit, [item])[0])

        threads = [threading.Thread(target=commit, args=(each,)) for each in committers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # MySQL 8.0 may report success to both.
        assert set(outcomes) <= {COMMITTED, ALREADY}
    assert target.visible() == list(range(10))


def test_1397_of_a_transaction_that_somebody_has_ended(target: Target) -> None:
    committer = target.committer()
    (by_commit,) = target.write([1])
    (by_rollback,) = target.write([2], attempt(partition=1))
    end_prepared(target.server, f"XA COMMIT {by_commit.name.xid}")
    end_prepared(target.server, f"XA ROLLBACK {by_rollback.name.xid}")
    assert committer.commit([by_commit, by_rollback]) == [ALREADY, LOST]
    assert committer.abort([by_commit, by_rollback]) == [
        AbortOutcome.COMMITTED, AbortOutcome.ABORTED,
    ]  # fmt: skip
    assert target.visible() == [1]


def test_xids_of_other_programs_are_left_alone(target: Target) -> None:
    """XA RECOVER lists everybody's, and their ids may be any bytes."""
    owner = target.server.connect(database=target.database)
    for sql in ("XA START X'ff00fe',X'80',1", "INSERT INTO orders VALUES (1, 'row 1')",
                "XA END X'ff00fe',X'80',1", "XA PREPARE X'ff00fe',X'80',1"):  # fmt: skip
        owner.query(sql)
    owner.close()
    (committable,) = target.write([2])
    (found,) = target.committer().list_lingering()
    assert found.committable.handle == committable.handle
    until_proved(target.committer().abort, [found.committable])
    assert len(all_prepared(target.server)) == 1


@pytest.mark.parametrize("local_infile", [1, 0])
def test_a_failed_statement_is_never_prepared(target: Target, local_infile: int) -> None:
    """XA PREPARE after it would succeed, and commit the other rows."""
    target.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    target.execute(f"SET GLOBAL local_infile={local_infile}")
    try:
        writer = target.sink.create_writer(attempt())
        writer.write(batch([1, 2]))
        with pytest.raises(WriteRefusedError, match="Duplicate entry '2'"):
            writer.write(batch([2, 3]))
        with pytest.raises(PreCommitError, match="has failed"):
            writer.write(batch([4]))
        with pytest.raises(PreCommitError, match="has failed"):
            writer.prepare_commit()
        assert target.prepared() == []
        writer.abort()
    finally:
        target.execute("SET GLOBAL local_infile=1")
    assert target.visible() == []
    (committable,) = target.write([2])  # no lock is left
    assert target.committer().commit([committable]) == [COMMITTED]


def test_an_empty_branch_is_never_prepared(target: Target) -> None:
    """The server prepares one, and then fails its commit with 1402."""
    writer = target.sink.create_writer(attempt())
    writer.write(batch([]))
    assert list(writer.prepare_commit()) == []
    assert all_prepared(target.server) == []


@pytest.mark.parametrize(
    ("mode", "statement"),
    [("xa", b"XA COMMIT"), ("staged", b"\x03COMMIT"), ("upsert", b"\x03COMMIT")],
)
def test_a_commit_whose_reply_is_lost_is_proved_by_the_next(
    proxied: tuple[CuttingProxy, Any], mode: str, statement: bytes
) -> None:
    proxy, make = proxied
    target = make(mode)
    committer = target.committer()
    committables = target.write(range(10))
    proxy.lose_reply_to(statement)
    assert answered(committer.commit, committables, RETRY) == [RETRY]
    assert proxy.cuts == 1
    assert target.visible() == list(range(10))
    assert until_proved(committer.commit, committables) == [ALREADY]
    assert target.visible() == list(range(10))
    assert list(committer.list_lingering()) == []
    assert target.stages() == []


def test_a_commit_that_never_arrived_is_asked_again(proxied: tuple[CuttingProxy, Any]) -> None:
    proxy, make = proxied
    target = make("staged")
    committer = target.committer()
    committables = target.write(range(10))
    proxy.lose_reply_to(b"INSERT INTO `" + target.database.encode() + b"`.`orders`")
    assert answered(committer.commit, committables, RETRY) == [RETRY]
    assert target.visible() == []
    assert until_proved(committer.commit, committables) == [COMMITTED]
    assert target.visible() == list(range(10))


def test_an_abort_whose_reply_is_lost_is_proved_by_the_next(
    proxied: tuple[CuttingProxy, Any],
) -> None:
    proxy, make = proxied
    target = make("xa")
    committer = target.committer()
    committables = target.write(range(10))
    proxy.lose_reply_to(b"XA ROLLBACK")
    assert answered(committer.abort, committables, AbortOutcome.RETRY) == [AbortOutcome.RETRY]
    assert until_proved(committer.abort, committables) == [AbortOutcome.ABORTED]
    assert target.visible() == []


def test_a_prepare_whose_reply_is_lost_lingers(proxied: tuple[CuttingProxy, Any]) -> None:
    """The task fails and reports nothing, so only the list can find the transaction."""
    proxy, make = proxied
    target = make("xa")
    committer = target.committer()
    writer = target.sink.create_writer(attempt())
    writer.write(batch(range(10)))
    proxy.lose_reply_to(b"XA PREPARE")
    with pytest.raises(pymysql.MySQLError):
        writer.prepare_commit()
    (left,) = committer.list_lingering()
    assert left.generation == 1
    assert until_proved(committer.abort, [left.committable]) == [AbortOutcome.ABORTED]
    assert target.prepared() == []
    assert target.visible() == []


def test_an_attempt_whose_prepare_was_not_answered_frees_its_locks(
    proxied: tuple[CuttingProxy, Any],
) -> None:
    proxy, make = proxied
    target = make("xa")
    writer = target.sink.create_writer(attempt(attempt=1))
    writer.write(batch([1, 2]))
    proxy.lose_reply_to(b"XA PREPARE")
    with pytest.raises(pymysql.MySQLError):
        writer.prepare_commit()
    assert len(target.prepared()) == 1
    writer.abort()
    assert target.prepared() == []


def test_an_attempt_that_gives_up_frees_its_locks(target: Target) -> None:
    """After PREPARE too: the task's retry inserts the same keys."""
    target.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    for at in (attempt(attempt=1), attempt(attempt=2)):
        writer = target.sink.create_writer(at)
        writer.write(batch([1, 2]))
        writer.prepare_commit()
        writer.abort()
    assert target.prepared() == []
    (committable,) = target.write([1, 2], attempt(attempt=3))
    assert target.committer().commit([committable]) == [COMMITTED]


def test_after_a_change_of_mode_what_is_open_is_still_ended(target: Target) -> None:
    (by_xa,) = target.write([1])
    (lingering,) = target.write([2], attempt(partition=1))
    staged = target_on(target.server, target.database, "staged")
    (stage,) = staged.write([3], attempt(partition=2))
    assert staged.committer(2).commit([by_xa, stage]) == [COMMITTED, COMMITTED]
    (left,) = staged.committer(2).list_lingering()
    assert left.committable.handle == lingering.handle
    assert staged.committer(2).abort([left.committable]) == [AbortOutcome.ABORTED]
    assert target.visible() == [1, 3]
    assert target.prepared() == []


def test_a_stage_that_somebody_dropped_or_changed_is_lost(
    mariadb: MariaDBServer, database: str
) -> None:
    target = target_on(mariadb, database, "staged")
    committer = target.committer()
    (dropped,) = target.write([1])
    (changed,) = target.write([2], attempt(partition=1))
    (whole,) = target.write([3], attempt(partition=2))
    target.execute(f"DROP TABLE {dropped.name.stage_table}")
    target.execute(f"DELETE FROM {changed.name.stage_table}")
    assert committer.commit([dropped, changed, whole]) == [LOST, LOST, COMMITTED]
    assert target.visible() == [3]
    assert set(target.ledger().values()) == {"aborted", "committed"}


def test_a_committer_waits_for_the_other_nodes_of_a_cluster(target: Target) -> None:
    """Else it could miss another node's stage. A server without the variable is in no cluster."""
    connection = target.committer()._connected()
    wanted = {"wsrep_sync_wait": "15", "group_replication_consistency": "BEFORE"}
    for name, value in wanted.items():
        found = rows(connection, f"SHOW SESSION VARIABLES LIKE '{name}'")
        assert found in ([(name, value)], [])
    ((version,),) = target.execute("SELECT @@version")
    if "mariadb" in version.lower():
        assert rows(connection, "SELECT @@SESSION.wsrep_sync_wait") == [(15,)]


def test_old_ledger_rows_are_forgotten(target: Target) -> None:
    committer = target.committer()
    for epoch in (0, 1, LEDGER_EPOCHS + 1):
        until_proved(committer.commit, target.write([epoch], attempt(epoch=epoch)))
    epochs = [e for (e,) in target.execute("SELECT epoch FROM _seamark_ledger ORDER BY epoch")]
    assert epochs == [1, LEDGER_EPOCHS + 1]

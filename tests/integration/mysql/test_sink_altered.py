"""A table altered while the job runs: no row is rounded, doubled or written over another. It is
refused with its reason, and the table takes the rows whole once it is altered back."""

from __future__ import annotations

import datetime as dt
from contextlib import closing
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pymysql.err import OperationalError

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError, WriteRefusedError
from seamark.model.schema import Column, Schema
from seamark.sinks.mysql import MySQLSink, writer
from seamark.sinks.mysql.table import exact_collation
from seamark.verify.conformance.steps import attempt
from tests.integration.mysql.sink_kit import MODES, context
from tests.servers.mariadb import MariaDBServer

DONE = [CommitOutcome.COMMITTED]
SCHEMA: Schema = (
    Column("id", "bigint"), Column("amount", "decimal(10,2)"), Column("at", "timestamp"),
    Column("name", "string"),
)  # fmt: skip
ROW = (7, Decimal("1.25"), dt.datetime(2026, 3, 29, 1, 30, 0, 623456), "a")
HARMFUL = {
    "fewer digits": ("amount", "DECIMAL(10,1)", "DECIMAL(10,2)"),
    "whole numbers": ("amount", "BIGINT", "DECIMAL(10,2)"),
    "floating point": ("id", "DOUBLE NOT NULL", "BIGINT NOT NULL"),
    "whole seconds": ("at", "DATETIME", "DATETIME(6)"),
    "padded": ("name", "BINARY(9)", "VARCHAR(99)"),
}


def rows(number: int = ROW[0], name: str = ROW[3]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": [number],
            "amount": pa.array([ROW[1]], pa.decimal128(10, 2)),
            "at": pa.array([ROW[2].replace(tzinfo=dt.timezone.utc)], pa.timestamp("us", "UTC")),
            "name": [name],
        }
    )


def exact(server: MariaDBServer) -> str:
    return exact_collation(server.execute("SELECT VERSION()")[0][0])


class Altered:
    """A sink into the table `orders`, and the table."""

    def __init__(self, server: MariaDBServer, database: str, mode: str, *keys: str) -> None:
        self._server, self._database = server, database
        self.execute(
            "CREATE TABLE orders (id BIGINT NOT NULL, amount DECIMAL(10,2), at DATETIME(6), "
            f"name VARCHAR(99) CHARACTER SET utf8mb4 COLLATE {exact(server)}, "
            f"PRIMARY KEY ({', '.join(keys or ('id',))}))"
        )
        url = server.url(database=database)
        self.sink = MySQLSink(url, "orders", mode, keys=keys)  # type: ignore[arg-type]
        self.committer = self.sink.create_committer(context(schema=SCHEMA))
        self.committer.preflight()

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        return self._server.execute(sql, database=self._database)

    def alter(self, column: str, kind: str) -> None:
        self.execute(f"ALTER TABLE orders MODIFY {column} {kind}")

    def write(self, batch: pa.RecordBatch, epoch: int = 0) -> list[Any]:
        writer = self.sink.create_writer(attempt(epoch=epoch))
        try:
            writer.write(batch)
            return list(writer.prepare_commit())
        except BaseException:
            writer.abort()
            raise

    def found(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT id, amount, at, name FROM orders ORDER BY id")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", HARMFUL)
def test_rows_of_an_altered_table_are_refused_whole(
    mariadb: MariaDBServer, database: str, mode: str, how: str
) -> None:
    column, kind, back = HARMFUL[how]
    target = Altered(mariadb, database, mode, *(["id"] if mode == "upsert" else []))
    target.alter(column, kind)
    with pytest.raises(WriteRefusedError, match=rf"column '{column}'"):
        target.write(rows())
    target.alter(column, back)
    assert list(target.committer.commit(target.write(rows()))) == DONE
    assert target.found() == [ROW]


@pytest.mark.parametrize("mode", ["staged", "upsert"])
@pytest.mark.parametrize("how", HARMFUL)
def test_staged_rows_wait_until_the_table_is_altered_back(
    mariadb: MariaDBServer, database: str, mode: str, how: str
) -> None:
    column, kind, back = HARMFUL[how]
    target = Altered(mariadb, database, mode, *(["id"] if mode == "upsert" else []))
    staged = target.write(rows())
    target.alter(column, kind)
    with pytest.raises(CommitFailedError, match=rf"column '{column}'.* altered while the job ran"):
        target.committer.commit(staged)
    assert target.found() == []
    target.alter(column, back)
    assert list(target.committer.commit(staged)) == DONE
    assert target.found() == [ROW]


def test_a_wider_table_takes_what_was_staged_before(mariadb: MariaDBServer, database: str) -> None:
    target = Altered(mariadb, database, "staged")
    staged = target.write(rows())
    target.alter("amount", "DECIMAL(20,2)")
    target.alter("id", "DECIMAL(30,0) NOT NULL")
    target.execute("ALTER TABLE orders ADD note VARCHAR(9) DEFAULT 'new'")
    assert list(target.committer.commit(staged)) == DONE
    assert target.found() == [ROW]


KEYS = {
    "no key": ("DROP PRIMARY KEY", "ADD PRIMARY KEY (name)"),
    "a second key": ("ADD UNIQUE second (amount)", "DROP KEY second"),
    "a key without case": (
        "MODIFY name VARCHAR(99) COLLATE utf8mb4_general_ci NOT NULL",
        "MODIFY name VARCHAR(99) COLLATE {exact} NOT NULL",
    ),
    "no transactions": ("ENGINE=MyISAM", "ENGINE=InnoDB"),
}


@pytest.mark.parametrize("how", KEYS)
def test_rows_are_not_merged_by_a_key_that_is_no_more(
    mariadb: MariaDBServer, database: str, how: str
) -> None:
    there, back = (sql.format(exact=exact(mariadb)) for sql in KEYS[how])
    target = Altered(mariadb, database, "upsert", "name")
    assert list(target.committer.commit(target.write(rows(1, "a"), 0))) == DONE
    staged = target.write(pa.concat_batches([rows(2, "a"), rows(3, "A")]), 1)
    target.execute(f"ALTER TABLE orders {there}")
    before = target.found()
    with pytest.raises(CommitFailedError, match=r"altered while the job ran"):
        target.committer.commit(staged)
    assert target.found() == before
    target.execute(f"ALTER TABLE orders {back}")
    assert list(target.committer.commit(staged)) == DONE
    assert [(number, name) for number, *_, name in target.found()] == [(2, "a"), (3, "A")]


@pytest.mark.parametrize("mode", MODES)
def test_an_engine_without_transactions_gets_no_rows(
    mariadb: MariaDBServer, database: str, mode: str
) -> None:
    target = Altered(mariadb, database, mode, *(["id"] if mode == "upsert" else []))
    target.execute("ALTER TABLE orders ENGINE=MyISAM")
    with pytest.raises(WriteRefusedError, match=r"its engine is MyISAM now.*ENGINE=InnoDB"):
        target.write(rows())
    assert target.found() == []


def test_nobody_alters_the_table_between_the_look_and_the_load(
    mariadb: MariaDBServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Altered(mariadb, database, "xa")
    look = writer.read_engine

    def looked(*table: Any) -> str:
        seen = look(*table)
        with closing(mariadb.connect(database=database)) as other, other.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout=1")
            with pytest.raises(OperationalError, match="Lock wait timeout"):
                cursor.execute("ALTER TABLE orders MODIFY amount DECIMAL(10,1)")
        return seen

    monkeypatch.setattr(writer, "read_engine", looked)
    assert list(target.committer.commit(target.write(rows()))) == DONE
    assert target.found() == [ROW]
    target.committer.close()

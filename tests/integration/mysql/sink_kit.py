"""Common parts of the tests of this directory: a sink on a database of its own, and looks at the
server.

`Target` knows a table of numbers, as the conformance suite's; other tables are the tests' own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.schema import Column
from seamark.sinks.mysql import MySQLSink
from seamark.sinks.mysql.committable import MySQLCommittable, from_xid
from seamark.sinks.mysql.committer import MySQLCommitter
from seamark.sinks.mysql.connection import prepared_xids
from seamark.verify.conformance import LineUnderTest, ServerUnderTest, SinkUnderTest
from seamark.verify.conformance.steps import attempt, driver
from tests.chaos.driver import wait_until
from tests.servers.mariadb import MariaDBServer

MODES = ("xa", "staged", "upsert")
NUMBERS = (Column("id", "bigint"), Column("text", "string"))


@dataclass
class Target:
    """A sink on one database, `orders` its table."""

    server: MariaDBServer
    database: str
    sink: MySQLSink

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement as root, in the database."""
        return self.server.execute(sql, database=self.database)

    def committer(self, generation: int = 1) -> MySQLCommitter:
        """Return a committer after its preflight."""
        made = self.sink.create_committer(context(generation))
        made.preflight()
        return made

    def write(
        self, numbers: Sequence[int], at: WriterContext | None = None
    ) -> list[MySQLCommittable]:
        """Write and flush rows of these numbers."""
        writer = self.sink.create_writer(at or attempt())
        writer.write(batch(numbers))
        return list(writer.prepare_commit())

    def visible(self) -> list[int]:
        """Return the numbers in the table, in order."""
        return [number for (number,) in self.execute("SELECT id FROM orders ORDER BY id")]

    def prepared(self) -> list[str]:
        """Return the prepared XA transactions of Seamark's, as text."""
        names = [from_xid(*xid) for xid in all_prepared(self.server)]
        return [str(name) for name in names if name is not None]

    def stages(self) -> list[str]:
        """Return the stage tables."""
        return [name for (name,) in self.execute("SHOW TABLES LIKE '\\_seamark\\_stage%'")]

    def ledger(self) -> dict[str, str]:
        """Return each transaction's outcome by its branch."""
        return dict(self.execute("SELECT branch, outcome FROM _seamark_ledger"))


MakeTarget = Callable[..., Target]


def all_prepared(server: MariaDBServer) -> list[tuple[int, int, bytes]]:
    """Return every prepared XA transaction, anybody's."""
    with contextlib.closing(server.connect()) as connection:
        return prepared_xids(connection)


def end_prepared(server: MariaDBServer, statement: str) -> None:
    """Commit or roll back a prepared transaction. One whose connection is just closed is unknown to
    others until the server has noticed."""
    from pymysql.err import OperationalError

    def ended() -> bool:
        try:
            server.execute(statement)
        except OperationalError as error:
            if error.args[0] != 1397:
                raise
            return False
        return True

    wait_until("the transaction to be ended", ended, 60)


def context(generation: int = 1, schema: tuple[Column, ...] = NUMBERS) -> SinkContext:
    """Return the suite's driver, with the DataFrame's shape."""
    plain = driver(generation)
    return SinkContext(
        plain.job_id, plain.job_name, plain.sink_uid, generation, plain.checkpoint_interval_s,
        schema,
    )  # fmt: skip


def batch(numbers: Sequence[int]) -> pa.RecordBatch:
    """Return one row a number."""
    return pa.record_batch(
        [pa.array(numbers, pa.int64()), pa.array([f"row {n}" for n in numbers], pa.string())],
        names=["id", "text"],
    )


def inserts(numbers: Sequence[int]) -> pa.RecordBatch:
    """Return the same, as changes."""
    return batch(numbers).append_column("op", pa.array(["insert"] * len(numbers), pa.string()))


def target_on(
    server: MariaDBServer, database: str, mode: str = "xa", *, port: int = 0, key: bool = False,
    timeout: str = "20s",
) -> Target:  # fmt: skip
    """Make the table, and return a sink on it; `port` is a proxy's."""
    op = "op" if mode == "changes" else None  # upsert, with op
    mode = "upsert" if op else mode
    key = key or mode == "upsert"
    server.execute(
        "CREATE TABLE IF NOT EXISTS orders (id BIGINT NOT NULL, text LONGTEXT"
        + (", PRIMARY KEY (id))" if key else ")"),
        database=database,
    )
    sink = MySQLSink(
        server.url(database=database, port=port), "orders", mode,  # type: ignore[arg-type]
        keys=["id"] if mode == "upsert" else (), op=op, timeout=timeout,
    )  # fmt: skip
    target = Target(server, database, sink)
    target.committer().close()  # makes the ledger
    return target


def sink_under_test(
    server: MariaDBServer, database: str, mode: str, timeout: str = "20s"
) -> SinkUnderTest:
    """Return the conformance suite's needs, in an empty database."""
    key = ", PRIMARY KEY (id)" if mode in ("upsert", "changes") else ""
    refused = pa.record_batch({"id": [1], "text": pa.array([None], pa.string())})
    if mode == "changes":
        refused = refused.append_column("op", pa.array(["insert"]))
    server.execute(
        f"CREATE TABLE {database}.orders (id BIGINT NOT NULL, text LONGTEXT NOT NULL{key})"
    )
    target = target_on(server, database, mode, timeout=timeout)

    def visible() -> list[int]:
        rows = server.execute(f"SELECT id, text FROM {database}.orders")
        assert all(text == f"row {number}" for number, text in rows)
        return [number for number, _ in rows]

    def drop(committable: MySQLCommittable) -> None:
        """Neither way has a time-out: this is an administrator at work."""
        name = committable.name
        if mode == "xa":
            end_prepared(server, f"XA ROLLBACK {name.xid}")
        else:
            server.execute(f"DROP TABLE {name.stage_table}", database=database)

    points = tuple(f"xa-committed:{nth}" for nth in (1, 2, 3))
    return SinkUnderTest(
        sink=target.sink,
        batch=inserts if mode == "changes" else batch,
        visible=visible,
        writer_failpoint="xa-prepared" if mode == "xa" else "stage-written",
        commit_failpoints=points if mode == "xa" else ("ledger-committed",),
        drop=drop,
        refused=lambda: refused,
        server=ServerUnderTest(kill=server.kill, restart=server.start),
        line=LineUnderTest(
            "127.0.0.1",
            server.port,
            lambda port: target_on(server, database, mode, port=port, timeout=timeout).sink,
        ),
    )

"""Common parts of the tests of `SqlSink`: a place in a database, and a reader's view of it by
SQLAlchemy's plain engine, with statements of the tests' own.

Firebird is tried where ``SEAMARK_TEST_FIREBIRD=firebird+firebird://SYSDBA:password@127.0.0.1:3050``
names a server: no test needs it, as its driver asks for protobuf 5 and PySpark for 6
(docs/sinks/sql.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from seamark.contracts.sink import Committer, SinkContext, WriterContext
from seamark.model.schema import Column, Schema
from seamark.sinks.sql import SqlSink
from seamark.verify.conformance import LineUnderTest, ServerUnderTest, SinkUnderTest
from seamark.verify.conformance.steps import attempt, driver
from tests.integration.mysql.conftest import fresh_database
from tests.integration.postgres.sink_kit import fresh_schema
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer

NUMBERS: Schema = (Column("id", "bigint"), Column("text", "string"))
OP = (*NUMBERS, Column("op", "string"))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a test has its tables. `prefix` stands before a table's name; `server` is what can be
    killed, `through` makes the URL of a proxy's port."""

    url: str
    prefix: str = ""
    server: PostgresServer | MariaDBServer | None = None
    through: Callable[[int], str] | None = None

    def sink(self, **settings: Any) -> SqlSink:
        """Return a sink into the table `orders`."""
        return SqlSink(**{"url": self.url, "table": f"{self.prefix}orders", **settings})

    def execute(self, sql: str) -> list[Any]:
        """Run a statement; ``{}`` stands for the prefix."""
        engine = sa.create_engine(self.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            result = connection.exec_driver_sql(sql.replace("{}", self.prefix))
            return [tuple(row) for row in result] if result.returns_rows else []

    @property
    def in_files(self) -> bool:
        """Whether rows are staged in files."""
        return self.url.startswith("duckdb")

    def visible(self) -> list[int]:
        """Return the numbers that a reader sees, in order."""
        return [n for (n,) in self.execute("SELECT id FROM {}orders ORDER BY id")]

    def stages(self) -> list[str]:
        """Return the stage tables, or files."""
        if self.in_files:
            root = Path(f"{sa.make_url(self.url).database}.seamark")
            return [str(path) for path in root.rglob("*.parquet")]
        look = sa.inspect(sa.create_engine(self.url, poolclass=sa.NullPool))
        names = look.get_table_names(self.prefix.rstrip(".") or None)
        return [f"{self.prefix}{name}" for name in names if name.startswith("_seamark_stage_")]

    def staged(self) -> int:
        """Return how many rows lie in the stages."""
        return sum(self._run(sa.select(sa.func.count()).select_from(of)) for of in self._stages())

    def drop(self, handle: str) -> None:
        """Delete a transaction's rows from its stage, as an administrator might."""
        for of in self._stages(sa.column("_seamark_handle")):
            self._run(sa.delete(of).where(of.c["_seamark_handle"] == handle))

    def _stages(self, *columns: Any) -> list[Any]:
        if self.in_files:
            return [sa.func.read_parquet(path) for path in self.stages()]
        schema = self.prefix.rstrip(".") or None
        names = (name.removeprefix(self.prefix) for name in self.stages())
        return [sa.table(name, *columns, schema=schema) for name in names]

    def _run(self, statement: Any) -> Any:
        with sa.create_engine(self.url, poolclass=sa.NullPool).begin() as connection:
            result = connection.execute(statement)
            return result.scalar_one() if result.returns_rows else None


@contextlib.contextmanager
def sqlite_place(directory: Path) -> Iterator[Place]:
    yield Place(f"sqlite:///{directory / 'target.db'}")


@contextlib.contextmanager
def duckdb_place(directory: Path) -> Iterator[Place]:
    yield Place(f"duckdb:///{directory / 'target.duckdb'}")


@contextlib.contextmanager
def opened_elsewhere(place: Place) -> Iterator[None]:
    """Another process has DuckDB's file open."""
    hold = (
        "import duckdb, sys; at = duckdb.connect(sys.argv[1]); print('open', flush=True); input()"
    )
    path = str(sa.make_url(place.url).database)
    with subprocess.Popen(
        [sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        yield
        holder.communicate("\n")


@contextlib.contextmanager
def postgres_place(server: PostgresServer) -> Iterator[Place]:
    with fresh_schema(server) as schema:
        yield Place(server.url(), f"{schema}.", server, lambda port: str(server.url(port=port)))


@contextlib.contextmanager
def mariadb_place(server: MariaDBServer) -> Iterator[Place]:
    dialect = "mariadb" if type(server) is MariaDBServer else "mysql"

    def url(port: int = 0) -> str:
        return server.url(database=name, port=port).replace("mysql:", f"{dialect}+pymysql:")

    with fresh_database(server) as name:
        yield Place(url(), "", server, url)


@contextlib.contextmanager
def firebird_place(directory: Path, server: str) -> Iterator[Place]:
    """`server` is the value of SEAMARK_TEST_FIREBIRD, a server's URL with the user and no database;
    it runs on this machine and may write into the tests' directories."""
    from firebird.driver import create_database

    at, path = sa.make_url(server), str(directory / "target.fdb")
    dsn = f"{at.host}/{at.port}:{path}"
    create_database(dsn, user=at.username, password=at.password, charset="UTF8").close()
    url = at.set(database=path, query={"charset": "UTF8"})
    yield Place(url.render_as_string(hide_password=False))


Fixture = Callable[[str], Any]
DIALECTS: dict[str, Callable[[Fixture], AbstractContextManager[Place]]] = {
    "sqlite": lambda fixture: sqlite_place(fixture("tmp_path")),
    "duckdb": lambda fixture: duckdb_place(fixture("tmp_path")),
    "postgresql": lambda fixture: postgres_place(fixture("postgres")),
    "mariadb": lambda fixture: mariadb_place(fixture("mariadb")),
}

if firebird := os.environ.get("SEAMARK_TEST_FIREBIRD"):
    DIALECTS["firebird"] = lambda fixture: firebird_place(fixture("tmp_path"), firebird)


def context(generation: int = 1, schema: Schema = NUMBERS) -> SinkContext:
    """Return the suite's driver, with the DataFrame's shape."""
    return dataclasses.replace(driver(generation), schema=schema)


def committer(sink: SqlSink, generation: int = 1, schema: Schema = NUMBERS) -> Committer[Any]:
    """Return a committer after its preflight."""
    made = sink.create_committer(context(generation, schema))
    made.preflight()
    return made


def batch(numbers: Sequence[int], text: str = "row", op: str = "") -> pa.RecordBatch:
    """Return one row a number; with `op`, as changes."""
    texts = pa.array([f"{text} {n}" for n in numbers], pa.string())
    rows = pa.record_batch([pa.array(numbers, pa.int64()), texts], names=["id", "text"])
    return rows.append_column("op", pa.array([op] * len(numbers), pa.string())) if op else rows


def write(sink: SqlSink, *batches: pa.RecordBatch, at: WriterContext | None = None) -> list[Any]:
    """Write and flush the batches; return the committables."""
    writer = sink.create_writer(at or attempt())
    for one in batches:
        writer.write(one)
    return list(writer.prepare_commit())


def under_test(place: Place, mode: str, timeout: str = "20s") -> SinkUnderTest:
    """Return the conformance suite's needs. Mode ``changes`` is an upsert with op."""
    schema, op = (OP, "insert") if mode == "changes" else (NUMBERS, "")
    key = "" if mode == "staged" else ", PRIMARY KEY (id)"
    null = "" if place.in_files else " NOT NULL"  # tasks cannot ask DuckDB for its table
    place.execute(f"CREATE TABLE {{}}orders (id BIGINT{null}, text VARCHAR(999){null}{key})")
    keys = [] if mode == "staged" else ["id"]
    how = "staged" if mode == "staged" else "upsert"
    sink = place.sink(mode=how, keys=keys, op="op" if op else None, timeout=timeout)
    committer(sink, schema=schema).close()
    text = pa.array([b"\xff"], pa.binary()).view(pa.string())
    refused = pa.record_batch({"id": [1], "text": text})
    if op:
        refused = refused.append_column("op", pa.array([op]))
    line = None
    if place.server is not None:
        line = LineUnderTest(
            "127.0.0.1",
            place.server.port,
            lambda port: dataclasses.replace(sink, url=place.through(port)),  # type: ignore[misc]
        )
    return SinkUnderTest(
        sink=sink,
        batch=lambda numbers: batch(numbers, op=op),
        visible=place.visible,
        writer_failpoint="stage-written",
        commit_failpoints=("ledger-committed",),
        # Nothing times out: this is an administrator at work.
        drop=lambda c: Path(c.stage).unlink() if place.in_files else place.drop(c.handle),
        refused=lambda: refused,
        server=ServerUnderTest(kill=place.server.kill, restart=place.server.start)
        if place.server is not None
        else None,
        line=line,
    )

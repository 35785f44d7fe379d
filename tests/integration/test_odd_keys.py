"""Every upsert sink of a database with keys of floating-point numbers: `tests/odd_keys.py`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from seamark.sinks.mysql import MySQLSink
from seamark.sinks.postgres import PostgresSink
from seamark.sinks.sql import SqlSink
from seamark.sinks.sqlite import SQLiteSink
from tests.integration.mysql.conftest import fresh_database, mariadb, mysql8  # noqa: F401
from tests.integration.postgres.sink_kit import fresh_schema
from tests.odd_keys import INFINITE, NANS, ZEROS, changed_at_random
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer

UPSERT: dict[str, Any] = {"mode": "upsert", "keys": ["id"]}
both = pytest.mark.parametrize("op", [None, "op"], ids=["rows", "changes"])
kinds = pytest.mark.parametrize("kind", ["double", "float"])


@both
@kinds
def test_postgres(postgres: PostgresServer, op: str | None, kind: str) -> None:
    with fresh_schema(postgres) as schema:
        sink = PostgresSink(postgres.url(), f"{schema}.t", op=op, **UPSERT)
        look = f"SELECT id, text FROM {schema}.t"
        every = (*ZEROS, *NANS, *INFINITE, 1.0)
        changed_at_random(sink, lambda: postgres.execute(look), every, kind=kind)


@both
@kinds
@pytest.mark.parametrize("server", ["mariadb", "mysql8"])
def test_mysql(request: pytest.FixtureRequest, server: str, op: str | None, kind: str) -> None:
    running: MariaDBServer = request.getfixturevalue(server)
    with fresh_database(running) as name:
        sink = MySQLSink(running.url(database=name), "t", op=op, **UPSERT)
        look = f"SELECT id, text FROM {name}.t"
        changed_at_random(sink, lambda: running.execute(look), (*ZEROS, 1.0), kind=kind)


@both
@kinds
def test_sqlite(tmp_path: Path, op: str | None, kind: str) -> None:
    def rows() -> list[tuple[Any, str]]:
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            return connection.execute("SELECT id, text FROM t").fetchall()

    sink = SQLiteSink(tmp_path / "a.db", "t", op=op, **UPSERT)
    changed_at_random(sink, rows, (*ZEROS, *INFINITE, 1.0), kind=kind)


@both
@pytest.mark.parametrize("dialect", ["sqlite", "duckdb", "postgresql", "mariadb"])
def test_any_sql(
    request: pytest.FixtureRequest, tmp_path: Path, dialect: str, op: str | None
) -> None:
    keys = (*ZEROS, 1.0)
    if dialect == "mariadb":
        running: MariaDBServer = request.getfixturevalue(dialect)
        url = running.url().replace("mysql:", "mysql+pymysql:")
    elif dialect == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.url().replace("postgresql:", "postgresql+psycopg:")
        keys = (*ZEROS, *NANS, *INFINITE, 1.0)
    else:
        url = f"{dialect}:///{tmp_path}/a.db"
        keys = (*ZEROS, *INFINITE, 1.0, *(NANS if dialect == "duckdb" else ()))
    sink = SqlSink(url, "odd", op=op, **UPSERT)
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)

    def rows() -> list[tuple[Any, str]]:
        with engine.connect() as connection:
            return [(key, text) for key, text in connection.execute(sa.text("SELECT * FROM odd"))]

    try:
        changed_at_random(sink, rows, keys)
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE IF EXISTS odd"))

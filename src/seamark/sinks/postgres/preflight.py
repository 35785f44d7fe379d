"""Checks the server when a job starts, before any row is written."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode
from seamark.sinks.postgres import ledger
from seamark.sinks.postgres import table as tables
from seamark.sinks.postgres.connection import BEGIN, CALL_TIMEOUT_S, driver, quoted, within
from seamark.sinks.postgres.table import Table

if TYPE_CHECKING:
    from seamark.sinks.postgres.sink import PostgresSink

OLDEST_VERSION = 13
"""The first version with 64-bit transaction ids in SQL."""


def check(sink: PostgresSink, context: SinkContext, name: str) -> None:
    """Raise PreflightError for the first failed check. Creates the table, if the sink is asked to,
    and the ledger, if the mode needs it."""
    server = sink.server
    try:
        with contextlib.closing(server.connect()) as connection, within(connection, CALL_TIMEOUT_S):
            _check_server(connection, sink, name)
            connection.execute(BEGIN)
            table = _table(connection, sink, context, name)
            tables.check(connection, table, context.schema, sink.keys, name)
            _check_privileges(connection, sink, table, name)
            if sink.mode != "prepared":
                ledger.create(connection, table.schema)
            connection.execute("COMMIT")
    except driver().Error as error:
        raise PreflightError(
            f"{name} cannot be used: {server.said(error)}. Check that {server.shown} is right, "
            "that the server runs and that it lets this user do that"
        ) from error


def _check_server(connection: Any, sink: PostgresSink, name: str) -> None:
    version = connection.info.server_version // 10_000
    if version < OLDEST_VERSION:
        raise PreflightError(
            f"{name}: the server is PostgreSQL {version}; {OLDEST_VERSION} or later is needed"
        )
    standby, limit = connection.execute(
        "SELECT pg_is_in_recovery(), current_setting('max_prepared_transactions')::int"
    ).fetchone()
    if standby:
        raise PreflightError(f"{name}: the server is a standby; give the primary's address")
    if sink.mode == "prepared" and limit == 0:
        raise PreflightError(
            Finding(
                FindingCode.PG001,
                subject=name,
                found="the server's max_prepared_transactions is 0, so that it can prepare none",
                remedy='give PostgresSink mode="staged", or set it above twice the number of '
                "Spark's tasks (ALTER SYSTEM SET max_prepared_transactions = 200) and restart the "
                "server",
            )
        )


def _table(connection: Any, sink: PostgresSink, context: SinkContext, name: str) -> Table:
    table = tables.describe(connection, sink.sql_name)
    if table is None and sink.create_table and context.schema:
        tables.create(connection, sink.sql_name, context.schema, sink.keys)
        table = tables.describe(connection, sink.sql_name)
    if table is None:
        raise PreflightError(
            f"{name}: there is no such table, or this user may not see it; make it, or give "
            "PostgresSink create_table=True"
        )
    return table


def _check_privileges(connection: Any, sink: PostgresSink, table: Table, name: str) -> None:
    needed = "INSERT" if sink.mode != "upsert" else "INSERT, SELECT, UPDATE"
    for privilege in needed.split(", "):
        if not _may(connection, "has_table_privilege", table.sql, privilege):
            raise PreflightError(
                f"{name}: this user lacks {privilege} on {table.sql}: GRANT {needed} ON "
                f"{table.sql} TO {connection.info.user}"
            )
    if sink.mode == "prepared":
        return
    if not _may(connection, "has_schema_privilege", quoted(table.schema), "CREATE"):
        raise PreflightError(
            f"{name}: mode={sink.mode!r} makes stage tables beside {table.sql}, and this user may "
            f"not: GRANT CREATE ON SCHEMA {quoted(table.schema)} TO {connection.info.user}, or use "
            "mode='prepared'"
        )


def _may(connection: Any, function: str, what: str, privilege: str) -> bool:
    if function == "has_schema_privilege":
        what = what[1:-1].replace('""', '"')
    return bool(connection.execute(f"SELECT {function}(%s, %s)", [what, privilege]).fetchone()[0])

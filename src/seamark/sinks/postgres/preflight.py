"""Checks the server when a job starts, before any row is written.

`ask_…` collect the facts and change nothing, the rules (`…_findings`) are pure. `check` raises the
first error; `look` yields every finding.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode
from seamark.sinks.internal.changes import target_columns
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.servers import tell
from seamark.sinks.postgres import ledger
from seamark.sinks.postgres import table as tables
from seamark.sinks.postgres.connection import BEGIN, driver, within
from seamark.sinks.postgres.table import Table

if TYPE_CHECKING:
    from seamark.sinks.postgres.sink import PostgresSink

_log = logging.getLogger(__name__)

OLDEST_VERSION = 13
"""The first version with 64-bit transaction ids in SQL."""
_SERVER = """
SELECT pg_is_in_recovery(), current_setting('max_prepared_transactions')::int,
       current_setting('fsync'), current_setting('full_page_writes')
"""


@dataclass(frozen=True)
class ServerFacts:
    """A server's settings. `off` lists the settings of crash safety that are turned off."""

    version: int
    standby: bool
    most_prepared: int
    off: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableFacts:
    """The target. `table` is None if it is missing; `misfit` says why the rows do not fit it, "" if
    they do; `lacks` lists this user's missing privileges."""

    user: str
    table: Table | None = None
    misfit: str = ""
    lacks: tuple[str, ...] = ()
    may_create: bool = True


def check(sink: PostgresSink, context: SinkContext, name: str) -> None:
    """Raise PreflightError for the first error, log warnings. Creates the table, if the sink is
    asked to, and the ledger, if the mode needs it."""
    with _connected(sink, name) as connection:
        tell(server_findings(sink, context, name, ask_server(connection)), _log)
        connection.execute(BEGIN)
        facts = ask_table(connection, sink, context)
        if facts.table is None and sink.create_table and context.schema:
            schema = target_columns(context.schema, sink.op)
            tables.create(connection, sink.sql_name, schema, sink.keys)
            facts = ask_table(connection, sink, context)
        tell(table_findings(sink, name, facts), _log)
        assert facts.table is not None  # else it was a finding
        if sink.mode != "prepared":
            ledger.create(connection, facts.table.schema)
        connection.execute("COMMIT")


def look(sink: PostgresSink, context: SinkContext, name: str) -> Iterator[Finding]:
    """Yield every finding, in a transaction that is only read. Raises PreflightError without an
    answer."""
    with _connected(sink, name) as connection:
        yield from server_findings(sink, context, name, ask_server(connection))
        connection.execute("BEGIN READ ONLY")
        facts = ask_table(connection, sink, context)
        connection.execute("ROLLBACK")
    if facts.table is not None or not sink.create_table:
        yield from table_findings(sink, name, facts)


@contextlib.contextmanager
def _connected(sink: PostgresSink, name: str) -> Iterator[Any]:
    server = sink.server
    try:
        with (
            contextlib.closing(server.connect()) as connection,
            within(connection, server.timeout_s),
        ):
            yield connection
    except driver().Error as error:
        raise PreflightError(
            Finding(
                FindingCode.SV003 if _is_denied(error) else FindingCode.SV001,
                name,
                f"it cannot be used: {server.said(error)}",
                f"check that {server.shown} is right, that the server runs and that it lets this "
                "user do that",
            )
        ) from error


def _needed(sink: PostgresSink) -> tuple[str, ...]:
    """Return the privileges on the table that the sink needs."""
    if sink.mode != "upsert":
        return ("INSERT",)
    return ("INSERT", "SELECT", "UPDATE", *(("DELETE",) if sink.op else ()))


def _is_denied(error: BaseException) -> bool:
    state = str(getattr(error, "sqlstate", None))
    return state == "42501" or state.startswith("28")


# --- facts


def ask_server(connection: Any) -> ServerFacts:
    """Return the server's settings."""
    standby, prepared, *safety = connection.execute(_SERVER).fetchone()
    names = ("fsync", "full_page_writes")
    off = tuple(name for name, value in zip(names, safety, strict=True) if value == "off")
    return ServerFacts(connection.info.server_version // 10_000, standby, prepared, off)


def ask_table(connection: Any, sink: PostgresSink, context: SinkContext) -> TableFacts:
    """Describe the target, and what this user may do with it."""
    user, table = connection.info.user, tables.describe(connection, sink.sql_name)
    if table is None:
        return TableFacts(user)

    def may(function: str, what: str, privilege: str) -> bool:
        sql = f"SELECT {function}(%s, %s)"
        return bool(connection.execute(sql, [what, privilege]).fetchone()[0])

    return TableFacts(
        user,
        table,
        tables.misfit(connection, table, target_columns(context.schema, sink.op), sink.keys),
        tuple(p for p in _needed(sink) if not may("has_table_privilege", table.sql, p)),
        may("has_schema_privilege", table.schema, "CREATE"),
    )


# --- rules


def server_findings(
    sink: PostgresSink, context: SinkContext, name: str, facts: ServerFacts
) -> Iterator[Finding]:
    """The server is too old, takes no writes, cannot hold back the rows of the open epochs, or
    confirms rows that its machine may still lose."""
    if facts.version < OLDEST_VERSION:
        found = f"the server is PostgreSQL {facts.version}"
        yield Finding(FindingCode.SV002, name, found, f"{OLDEST_VERSION} or later is needed")
    if facts.standby:
        found = "the server is a standby"
        yield Finding(FindingCode.SV002, name, found, "give the primary's address")
    needed = context.tasks * context.open_epochs
    if sink.mode == "prepared" and facts.most_prepared == 0:
        yield Finding(
            FindingCode.PG001,
            name,
            "the server's max_prepared_transactions is 0, so that it can prepare none",
            'give PostgresSink mode="staged", or set it above twice the number of '
            "Spark's tasks (ALTER SYSTEM SET max_prepared_transactions = 200) and restart the "
            "server",
        )
    elif sink.mode == "prepared" and facts.most_prepared < needed:
        yield Finding(
            FindingCode.PG002,
            name,
            f"the server's max_prepared_transactions is {facts.most_prepared}, and {context.tasks} "
            f"tasks of {context.open_epochs} epochs may prepare {needed}: the others fail",
            f"set it to {needed} or more and restart the server, lower "
            'spark.sql.shuffle.partitions, or give PostgresSink mode="staged"',
        )
    for setting in facts.off:
        yield Finding(
            FindingCode.SV006,
            name,
            f"{setting} is off at the server: rows that it has confirmed can be gone, or the "
            "table torn, after its machine crashes",
            f"set {setting} to on",
        )


def table_findings(sink: PostgresSink, name: str, facts: TableFacts) -> Iterator[Finding]:
    """The table is missing, does not fit the rows, or is not this user's to write."""
    table = facts.table
    if table is None:
        yield Finding(
            FindingCode.SV004,
            name,
            "there is no such table, or this user may not see it",
            "make it, or give PostgresSink create_table=True",
        )
        return
    if facts.misfit:
        yield Finding(FindingCode.SV005, name, facts.misfit, "change table or DataFrame")
    needed = ", ".join(_needed(sink))
    for privilege in facts.lacks:
        yield Finding(
            FindingCode.SV003,
            name,
            f"this user lacks {privilege} on {table.sql}",
            f"GRANT {needed} ON {table.sql} TO {facts.user}",
        )
    if sink.mode != "prepared" and not facts.may_create:
        yield Finding(
            FindingCode.SV003,
            name,
            f"mode={sink.mode!r} makes stage tables beside {table.sql}, and this user may not",
            f"GRANT CREATE ON SCHEMA {quoted(table.schema)} TO {facts.user}, or use "
            "mode='prepared'",
        )

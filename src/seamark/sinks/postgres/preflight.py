"""Checks the server when a job starts, before any row is written.

`ask_…` collect the facts and change nothing, the rules (`…_findings`) are pure.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode, Severity, errors
from seamark.sinks.internal.changes import target_columns
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.servers import Findings, quicker
from seamark.sinks.postgres import ledger, stage
from seamark.sinks.postgres import table as tables
from seamark.sinks.postgres.connection import BEGIN, driver, within
from seamark.sinks.postgres.stage_rules import met_late
from seamark.sinks.postgres.table import Table

if TYPE_CHECKING:
    from seamark.sinks.postgres.sink import PostgresSink

OLDEST_VERSION = 13
"""The first version with 64-bit transaction ids in SQL."""
_LOCKS_OF_A_STAGE = 7
"""Of its table, that of long values, their types and indexes, from the move to the commit."""
_SERVER = """
SELECT current_setting('transaction_read_only')::bool,
       current_setting('max_prepared_transactions')::int,
       ARRAY(SELECT f FROM unnest(ARRAY['pg_control_system()', 'pg_current_wal_lsn()',
             'pg_walfile_name(pg_lsn)']) f WHERE NOT has_function_privilege(f, 'EXECUTE')),
       current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int
       + current_setting('max_prepared_transactions')::int),
       current_setting('fsync'), current_setting('full_page_writes')
"""
_TABLE = """
SELECT ARRAY(SELECT p FROM unnest(%s::text[]) p WHERE NOT has_table_privilege(t.oid, p)),
       ARRAY(SELECT p FROM unnest(%s::text[]) p WHERE NOT has_table_privilege(to_regclass(%s), p)),
       has_schema_privilege(t.relnamespace, 'CREATE'), row_security_active(t.oid),
       ARRAY(SELECT pubname::text FROM pg_publication p WHERE pubinsert AND (puballtables{}))
FROM pg_class t WHERE t.oid = to_regclass(%s)
"""
_IN_SCHEMA = """ OR EXISTS (
  SELECT FROM pg_publication_namespace WHERE pnpubid = p.oid AND pnnspid = t.relnamespace)"""


@dataclass(frozen=True)
class ServerFacts:
    """A server's settings. `denied`: the functions of a server's history that this user may not
    call; `locks`: how many it can hold; `off`: the settings of crash safety that are turned off."""

    version: int
    only_reads: bool
    most_prepared: int
    denied: Sequence[str] = ()
    locks: int = 6400
    off: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableFacts:
    """The target. `table` is None if it is missing; `misfit` says why the rows do not fit it, "" if
    they do; `lacks` and `lacks_ledger` list this user's missing privileges; `bound`: row policies
    bind this user; `published_by`: the publications of every new table; `unlogged`: the tables
    emptied by a crash; `foreign`: the partitions of another server; `late`: what meets staged rows
    after the decision alone."""

    user: str
    table: Table | None = None
    misfit: str = ""
    lacks: Sequence[str] = ()
    lacks_ledger: Sequence[str] = ()
    may_create: bool = True
    bound: bool = False
    published_by: Sequence[str] = ()
    unlogged: Sequence[str] = ()
    foreign: Sequence[str] = ()
    late: Sequence[str] = ()


def look(sink: "PostgresSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """Yield every finding. A `start` creates the table, if the sink is asked to, and the ledger, if
    the mode needs it. Raises PreflightError without an answer."""
    with _connected(sink, name) as connection:
        server = ask_server(connection)
        yield from server_findings(sink, context, name, server)
        connection.execute(BEGIN if start else "BEGIN READ ONLY")
        facts = ask_table(connection, sink, context)
        missing = facts.table is None and sink.create_table
        if start and missing and context.schema:
            schema = target_columns(context.schema, sink.op)
            tables.create(connection, sink.sql_name, schema, sink.keys)
            facts = ask_table(connection, sink, context)
        of_table = list(table_findings(sink, name, facts)) if start or not missing else []
        yield from of_table
        if sink.mode == "upsert" and facts.table and context.schema and not errors(of_table):
            yield from merge_findings(connection, sink, context, name, facts.table)
        if start and sink.mode != "prepared":
            assert facts.table is not None  # else it was a finding
            ledger.create(connection, facts.table.schema)
            if ledger.is_bound(connection, facts.table.schema):
                yield ledger_bound(name, facts)
        connection.execute("COMMIT")
        enough = server.most_prepared >= max(1, needed(context)) and not server.denied
        if not start and sink.mode == "staged" and enough:
            found = f"the server's max_prepared_transactions is {server.most_prepared}"
            yield quicker(name, found, "prepared")


@contextlib.contextmanager
def _connected(sink: "PostgresSink", name: str) -> Iterator[Any]:
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


def merge_findings(
    connection: Any, sink: "PostgresSink", context: SinkContext, name: str, table: Table
) -> Findings:
    """The server refuses the statements of a merge, e.g. for a table without replica identity."""
    columns = [table.find(column.name) for column in target_columns(context.schema, sink.op)]
    names = [column.name for column in columns if column is not None]
    keys = [column.name for key in sink.keys if (column := table.find(key)) is not None]
    merge = stage.merge_statement(table.sql, table.sql, names, keys)
    try:
        connection.execute(f"EXPLAIN {merge}")
        if sink.op:
            connection.execute(f"EXPLAIN DELETE FROM {table.sql}")
    except driver().errors.ObjectNotInPrerequisiteState as error:
        remedy = f"mend it, e.g. ALTER TABLE {table.sql} REPLICA IDENTITY FULL"
        yield Finding(FindingCode.SV005, name, sink.server.said(error), remedy)


def _needed(sink: "PostgresSink") -> list[str]:
    """Return the privileges on the table that the sink needs."""
    if sink.mode != "upsert":
        return ["INSERT"]
    return ["INSERT", "SELECT", "UPDATE", *(["DELETE"] if sink.op else [])]


def _is_denied(error: BaseException) -> bool:
    state = str(getattr(error, "sqlstate", None))
    return state == "42501" or state.startswith("28")


# --- facts


def ask_server(connection: Any) -> ServerFacts:
    """Return the server's settings."""
    only_reads, prepared, denied, locks, *safety = connection.execute(_SERVER).fetchone()
    names = ("fsync", "full_page_writes")
    off = tuple(name for name, value in zip(names, safety, strict=True) if value == "off")
    version = connection.info.server_version // 10_000
    return ServerFacts(version, only_reads, prepared, denied, locks, off)


def ask_table(connection: Any, sink: "PostgresSink", context: SinkContext) -> TableFacts:
    """Describe the target, and what this user may do with it."""
    user, table = connection.info.user, tables.describe(connection, sink.sql_name)
    if table is None:
        return TableFacts(user)

    of_ledger = [] if sink.mode == "prepared" else ["SELECT", "INSERT", "UPDATE", "DELETE"]
    asked = _TABLE.format(_IN_SCHEMA if connection.info.server_version >= 150_000 else "")
    values = [_needed(sink), of_ledger, quoted(table.schema, ledger.NAME), table.sql]
    parts = tables.volatile(connection, table)
    volatile = ([n for foreign, n in parts if foreign is of] for of in (False, True))
    written = target_columns(context.schema, sink.op)
    names = [column.name for one in written if (column := table.find(one.name))]
    keys = [column.name for key in sink.keys if (column := table.find(key))]
    late = () if sink.mode == "prepared" else met_late(connection, table, names, keys)
    return TableFacts(
        user,
        table,
        tables.misfit(connection, table, written, sink.keys),
        *(*connection.execute(asked, values).fetchone(), *volatile, late),
    )


# --- rules


def needed(context: SinkContext) -> int:
    """Return the number of transactions that may be prepared at one time."""
    return context.tasks * context.open_epochs


def server_findings(
    sink: "PostgresSink", context: SinkContext, name: str, facts: ServerFacts
) -> Findings:
    """The server is too old, takes no writes, cannot hold back the rows of the open epochs, or
    confirms rows that its machine may still lose."""
    if facts.version < OLDEST_VERSION:
        found = f"the server is PostgreSQL {facts.version}"
        yield Finding(FindingCode.SV002, name, found, f"{OLDEST_VERSION} or later is needed")
    if facts.only_reads:
        found = "it takes no writes: it is a standby, or its default_transaction_read_only is on"
        remedy = "give the primary's address, or set default_transaction_read_only to off"
        yield Finding(FindingCode.SV002, name, found, remedy)
    if sink.mode == "prepared" and facts.most_prepared == 0:
        found = "the server's max_prepared_transactions is 0, so that it can prepare none"
        remedy = (
            'give PostgresSink mode="staged", or set it above twice the number of Spark\'s tasks '
            "(ALTER SYSTEM SET max_prepared_transactions = 200) and restart the server"
        )
        yield Finding(FindingCode.PG001, name, found, remedy)
    elif sink.mode == "prepared" and facts.most_prepared < needed(context):
        yield Finding(
            FindingCode.PG002,
            name,
            f"the server's max_prepared_transactions is {facts.most_prepared}, and {context.tasks} "
            f"tasks of {context.open_epochs} epochs may prepare {needed(context)}: the others fail",
            f"set it to {needed(context)} or more and restart the server, lower "
            'spark.sql.shuffle.partitions, or give PostgresSink mode="staged"',
        )
    if sink.mode == "prepared" and (denied := ", ".join(facts.denied)):
        found = f"this user may not call {denied}: a transaction's number proves nothing without"
        remedy = f"GRANT EXECUTE ON FUNCTION {denied} TO the user, or take mode='staged'"
        yield Finding(FindingCode.SV003, name, found, remedy)
    if sink.mode != "prepared" and (wanted := context.tasks * _LOCKS_OF_A_STAGE) > facts.locks:
        yield Finding(
            FindingCode.PG004,
            name,
            f"one transaction moves the stages of {context.tasks} tasks, with {wanted} locks, and "
            f"the server has room for {facts.locks}: no commit ends while there are too few",
            f"set max_locks_per_transaction to {wanted // facts.locks + 1} times its value and "
            "restart the server, lower spark.sql.shuffle.partitions, or give PostgresSink "
            'mode="prepared"',
        )
    for setting in facts.off:
        found = (
            f"{setting} is off at the server: rows that it has confirmed can be gone, or the table "
            "torn, after its machine crashes"
        )
        yield Finding(FindingCode.SV006, name, found, f"set {setting} to on")


def ledger_bound(name: str, facts: TableFacts) -> Finding:
    """Row policies bind this user on the ledger, and so perhaps on stages."""
    assert facts.table is not None
    of = quoted(facts.table.schema, ledger.NAME)
    found = (
        f"row policies bind this user on {of}: another role has made it, or an event trigger gives "
        "them to each new table, also to stages, which then take no COPY"
    )
    remedy = f"ALTER ROLE {facts.user} BYPASSRLS, or leave names with _seamark_ out of that trigger"
    return Finding(FindingCode.SV005, name, found, remedy)


def table_findings(sink: "PostgresSink", name: str, facts: TableFacts) -> Findings:
    """The table is missing, does not fit the rows, or is not this user's to write."""
    table = facts.table
    if table is None:
        found = "there is no such table, or this user may not see it"
        remedy = "make it, or give PostgresSink create_table=True"
        yield Finding(FindingCode.SV004, name, found, remedy)
        return
    if facts.misfit:
        yield Finding(FindingCode.SV005, name, facts.misfit, "change table or DataFrame")
    of_ledger = (quoted(table.schema, ledger.NAME), facts.lacks_ledger)
    for of, privileges in ((table.sql, facts.lacks), of_ledger):
        if missing := ", ".join(privileges):
            found = f"this user lacks {missing} on {of}"
            remedy = f"GRANT {missing} ON {of} TO {facts.user}"
            yield Finding(FindingCode.SV003, name, found, remedy)
    if facts.bound:
        found = (
            "row policies bind this user: they refuse COPY, and staged rows after the decision, "
            "and hide rows from deletes"
        )
        remedy = f"ALTER ROLE {facts.user} BYPASSRLS, or take the table's owner"
        # Policies that let every row through refuse no staged one.
        severe = sink.mode == "prepared" or sink.op is not None
        severity = Severity.ERROR if severe else Severity.WARNING
        yield Finding(FindingCode.SV005, name, found, remedy, severity)
    for of in facts.unlogged:
        found = f"{of} is UNLOGGED: the server empties it when it comes up after a crash"
        remedy = f"ALTER TABLE {of} SET LOGGED"
        yield Finding(FindingCode.SV006, name, found, remedy, Severity.ERROR)
    for of in facts.foreign:
        found = f"partition {of} is a foreign table, whose rows no two-phase commit covers"
        remedy = f"ALTER TABLE {table.sql} DETACH PARTITION {of}, or write into a table without it"
        yield Finding(FindingCode.SV005, name, found, remedy)
    if sink.mode == "prepared":
        return
    if publications := ", ".join(facts.published_by):
        found = (
            f"publication {publications} has every new table, so stage tables too: a PostgreSQL "
            "subscriber stops at a table that it lacks"
        )
        remedy = "publish the tables by name (FOR TABLE …), or use mode='prepared'"
        yield Finding(FindingCode.PG003, name, found, remedy)
    if late := ", ".join(facts.late):
        found = f"a row that {late} of {table.sql} refuses is found after the decision alone"
        remedy = (
            "see to it that none is, or take mode='prepared': it stops the job until the table is "
            "mended, and becomes no dead letter"
        )
        yield Finding(FindingCode.SV009, name, found, remedy)
    if not facts.may_create:
        found = f"mode={sink.mode!r} makes stage tables beside {table.sql}, and this user may not"
        remedy = f"GRANT CREATE ON SCHEMA {quoted(table.schema)} TO {facts.user}"
        yield Finding(FindingCode.SV003, name, found, f"{remedy}, or use mode='prepared'")

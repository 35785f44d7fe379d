"""Checks the real server before any row is written.

`ask_…` collect the facts and change nothing, the rules (`…_findings`) are pure.
"""

import contextlib
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode, Severity, errors
from seamark.model.schema import Schema
from seamark.sinks.internal.changes import target_columns
from seamark.sinks.internal.servers import Findings, quicker
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql import ledger, table
from seamark.sinks.mysql.committable import owner_of, stage_prefix
from seamark.sinks.mysql.stage import NUMBER
from seamark.sinks.mysql.table import TableColumn, UniqueIndex

if TYPE_CHECKING:
    from seamark.sinks.mysql.sink import MySQLSink

_log = logging.getLogger(__name__)
_OLDEST = {"MariaDB": (10, 5, 2), "MySQL": (8, 0, 0)}
"""Older servers roll back a prepared XA transaction when its connection closes, or lack NOWAIT."""
_ACCESS_DENIED = (1044, 1045, 1142, 1143, 1227, 1370, 1410)


@dataclass(frozen=True)
class ServerFacts:
    """A server. `flush` is its ``innodb_flush_log_at_trx_commit``, `sync` the ``sync_binlog`` of a
    server with a binary log; `unlisted` says why it lists no prepared transactions, "" if it does.
    """

    version: str
    flush: int = 1
    sync: int = 1
    infile: bool = True
    galera: bool = False
    unlisted: str = ""


@dataclass(frozen=True)
class TableFacts:
    """A table. `engine` is as `table.read_engine` says it, "" if there is no such table."""

    engine: str = ""
    columns: tuple[TableColumn, ...] = ()
    indexes: tuple[UniqueIndex, ...] = ()


def look(sink: "MySQLSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """Yield every finding. A `start` creates the ledger, and a missing table if the sink may.
    Raises PreflightError without an answer."""
    schema = target_columns(context.schema, sink.op)
    with _connected(sink, name) as connection:
        facts = ask_server(connection)
        yield from server_findings(sink, name, facts)
        facts_of_table = ask_table(connection, sink, sink.table)
        if start:
            if not facts.infile:
                _log.info("%s: local_infile is off, so rows go by INSERT, which is slower; set "
                          "local_infile=1 at the server", name)  # fmt: skip
            ledger.prepare(connection, sink.address.database)
            kept = ask_table(connection, sink, ledger.TABLE)
            yield from engine_findings(sink, ledger.TABLE, name, kept)
            if not facts_of_table.engine and sink.create_table and schema:
                server.execute(connection, (made := _statement(sink, schema, facts)))
                _log.info("%s: made the table: %s", name, made)
                facts_of_table = ask_table(connection, sink, sink.table)
        elif sink.mode == "staged" and not facts.galera and not facts.unlisted:
            yield quicker(name, "this user may end XA transactions", "xa")
        if not start and not facts_of_table.engine and sink.create_table:
            return
        of_table = list(table_findings(sink, schema, name, facts, facts_of_table))
        yield from of_table
        if not errors(of_table):
            _try_insert(connection, sink, schema)
            if start and sink.mode != "xa":
                _try_stage(connection, sink, context, schema)


@contextlib.contextmanager
def _connected(sink: "MySQLSink", name: str) -> Iterator[Any]:
    driver_errors = server.driver().MySQLError
    address = sink.address
    try:
        connection = server.connect(address, lock_timeout_s=min(10, math.ceil(address.timeout_s)))
    except (driver_errors, OSError) as error:
        found = f"no connection as user {address.user!r}: {error}"
        remedy = (
            "see that host, port, user, password and database in the url are right, and that the "
            "server can be reached from the driver and from every executor"
        )
        raise PreflightError(Finding(FindingCode.SV001, name, found, remedy)) from error
    with contextlib.closing(connection):
        try:
            server.read_committed(connection)
            yield connection
        except driver_errors as error:
            code, remedy = FindingCode.SV002, "see the server's message"
            if server.number(error) in _ACCESS_DENIED:
                rights = "CREATE, DROP, SELECT, INSERT, UPDATE, DELETE"
                code = FindingCode.SV003
                remedy = f"GRANT {rights} ON {server.quoted(address.database)}.* TO the user"
            found = f"the server refuses: {error}"
            raise PreflightError(Finding(code, name, found, remedy)) from error


# --- facts


def ask_server(connection: Any) -> ServerFacts:
    """Return the server's settings."""
    ((version, flush, sync, infile),) = server.rows(
        connection,
        "SELECT @@version, @@innodb_flush_log_at_trx_commit, IF(@@log_bin, @@sync_binlog, 1), "
        "@@local_infile",
    )
    galera = server.rows(connection, "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'")
    unlisted = ""
    try:
        server.prepared_xids(connection)
    except server.driver().MySQLError as error:
        unlisted = str(error)
    in_cluster = bool(galera) and str(galera[0][1]).upper() == "ON"
    return ServerFacts(str(version), int(flush), int(sync), bool(int(infile)), in_cluster, unlisted)


def ask_table(connection: Any, sink: "MySQLSink", name: str) -> TableFacts:
    """Describe a table of the sink's database."""
    database = sink.address.database
    return TableFacts(
        table.read_engine(connection, database, name),
        tuple(table.read_columns(connection, database, name)),
        tuple(table.read_unique_indexes(connection, database, name)),
    )


def _try_insert(connection: Any, sink: "MySQLSink", schema: Schema) -> None:
    """Let the server check rights, and that it can upsert into such a table; inserts nothing."""
    if not schema:
        return
    names = ", ".join(server.quoted(column.name) for column in schema)
    nulls = ", ".join("NULL" for _ in schema)
    into = server.quoted(sink.address.database, sink.table)
    sql = f"INSERT INTO {into} ({names}) SELECT {nulls} FROM DUAL WHERE FALSE"
    for key in map(server.quoted, sink.keys[:1]):
        sql += f" ON DUPLICATE KEY UPDATE {key} = {into}.{key}"
    server.execute(connection, sql)


def _try_stage(connection: Any, sink: "MySQLSink", context: SinkContext, schema: Schema) -> None:
    """Create and drop a stage. Without a comment it belongs to no transaction. The server refuses
    one whose DEFAULT uses a column that it lacks."""
    database = sink.address.database
    owner = owner_of(context.job_id, context.sink_uid)
    stage = server.quoted(database, f"{stage_prefix(owner)}preflight")
    columns = ", ".join(server.quoted(column.name) for column in schema) or "*"
    origin = f"SELECT {columns} FROM {server.quoted(database, sink.table)} WHERE FALSE"
    server.execute(connection, f"DROP TABLE IF EXISTS {stage}")
    server.execute(connection, f"CREATE TABLE {stage} ({NUMBER}) ENGINE=InnoDB AS {origin}")
    server.execute(connection, f"DROP TABLE {stage}")


# --- rules


def server_findings(sink: "MySQLSink", name: str, facts: ServerFacts) -> Findings:
    """The server is too old, may lose confirmed rows, or has no XA transactions for this user."""
    kind = "MariaDB" if "mariadb" in facts.version.lower() else "MySQL"
    if table.version_of(facts.version) < _OLDEST[kind]:
        yield Finding(
            FindingCode.SV002,
            name,
            f"the server is {facts.version}",
            f"at least {kind} {'.'.join(map(str, _OLDEST[kind]))} is needed: older ones drop "
            "prepared transactions, or cannot tell how one ended",
        )
    # A log that InnoDB does not write loses a second of commits with the process.
    settings = {"innodb_flush_log_at_trx_commit": facts.flush, "sync_binlog": facts.sync}
    for setting, value in settings.items():
        if value != 1:
            found = (
                f"{setting} is {value}: rows confirmed by the server can be gone after it crashes"
            )
            severity = Severity.ERROR if setting.startswith("innodb") and value == 0 else None
            found += "" if severity else " with its machine"
            yield Finding(FindingCode.SV006, name, found, "set it to 1", severity)
    if sink.mode == "xa" and facts.galera:
        found = "the server is part of a Galera cluster, which has no XA transactions"
        yield Finding(FindingCode.SV002, name, found, "take mode='staged'")
    if sink.mode == "xa" and facts.unlisted:
        found = f"prepared transactions cannot be listed: {facts.unlisted}"
        remedy = "GRANT XA_RECOVER_ADMIN ON *.* TO the user, or take mode='staged'"
        yield Finding(FindingCode.SV003, name, found, remedy)


def altered(
    connection: Any, sink: "MySQLSink", schema: Schema, name: str, stage: str, now: TableFacts
) -> str:
    """Return why the table, as it is `now`, would alter or refuse staged rows, or ""."""
    version = ServerFacts(str(connection.get_server_info()))
    if unfit := errors(table_findings(sink, schema, name, version, now)):
        return f"{unfit[0].found}; {unfit[0].remedy}"
    narrow = {c.name.lower(): c for c in now.columns if c.data_type in table.NARROW}
    staged = table.read_columns(connection, sink.address.database, stage) if narrow else ()
    for column in staged:
        into = narrow.get(column.name.lower(), column)
        if (into.data_type, into.members) != (column.data_type, column.members):
            return (
                f"column {into.name!r} was {column.data_type} when they were staged, and "
                f"{into.data_type} alters some texts; alter it back"
            )
    return ""


def engine_findings(sink: "MySQLSink", of: str, name: str, facts: TableFacts) -> Findings:
    """The table `of` has no transactions."""
    if facts.engine.lower() != "innodb":
        yield Finding(
            FindingCode.SV005,
            name,
            f"{server.quoted(sink.address.database, of)} is {facts.engine or 'not visible'}, and "
            "only InnoDB tables have the transactions that exactly-once needs",
            "ALTER TABLE … ENGINE=InnoDB, or choose another table",
        )


def table_findings(
    sink: "MySQLSink", schema: Schema, name: str, server_facts: ServerFacts, facts: TableFacts
) -> Findings:
    """The target is missing, has no transactions, or does not fit the rows or their keys."""
    if not facts.engine:
        how = f": {_statement(sink, schema, server_facts)}" if schema else ""
        remedy = f"create it, or let the sink do so with create_table=True{how}"
        yield Finding(FindingCode.SV004, name, f"the table {_target(sink)} does not exist", remedy)
        return
    yield from engine_findings(sink, sink.table, name, facts)
    if schema:
        yield from column_findings(sink, schema, name, server_facts, facts)
    if sink.mode == "upsert":
        yield from key_findings(sink, schema, name, facts)


def column_findings(
    sink: "MySQLSink", schema: Schema, name: str, server_facts: ServerFacts, facts: TableFacts
) -> Findings:
    """A column is missing, would alter values or take two keys for one, or must be given and is
    not."""
    unfit = partial(Finding, FindingCode.SV005, name)
    columns = {column.name.lower(): column for column in facts.columns}
    given = {column.name.lower() for column in schema}
    alter = f"ALTER TABLE {_target(sink)}"
    for column in schema:
        target, is_key = columns.get(column.name.lower()), column.name in sink.keys
        made = table.column_type(column, is_key, server_facts.version)
        wanted = f"{server.quoted(column.name)} {made}{' NOT NULL' if is_key else ''}"
        if target is None:
            yield unfit(
                f"{_target(sink)} has no column {column.name!r} (it has "
                f"{', '.join(c.name for c in facts.columns)})",
                f"drop it from the DataFrame, or {alter} ADD COLUMN {wanted}",
            )
        elif why := table.misfit(column, target):
            yield unfit(
                f"column {column.name!r} is {column.type} in the DataFrame, and "
                f"{target.data_type} in {_target(sink)} {why}",
                f"convert it in the DataFrame, or {alter} MODIFY {wanted}",
            )
        elif is_key and not target.is_exact:
            yield unfit(
                f"key {column.name!r} of {_target(sink)} has the collation {target.collation}, "
                "which takes different keys for one, such as 'a' and 'A' or 'a' and 'a '",
                f"{alter} MODIFY {wanted}",
            )
    for target in facts.columns:
        if target.must_be_given and not target.generated and target.name.lower() not in given:
            yield unfit(
                f"column {target.name!r} of {_target(sink)} is NOT NULL, has no default and is not "
                "in the DataFrame",
                "select it, or give it a default",
            )


def key_findings(sink: "MySQLSink", schema: Schema, name: str, facts: TableFacts) -> Findings:
    """No unique index has exactly the keys, or another one would overwrite rows too."""
    unfit = partial(Finding, FindingCode.SV005, name)
    keys, shown = {key.lower() for key in sink.keys}, ", ".join(sink.keys)
    given = {column.name.lower() for column in schema}
    apart = {column.name.lower() for column in facts.columns if column.apart} - given
    parts = {index: {column.lower() for column in index.columns} for index in facts.indexes}
    if keys not in parts.values():
        yield unfit(
            f"{_target(sink)} has no unique index on exactly ({shown}), by which rows could be "
            "found again",
            f"ALTER TABLE {_target(sink)} ADD PRIMARY KEY "
            f"({', '.join(map(server.quoted, sink.keys))})",
        )
    for index, columns in parts.items():
        if columns != keys and not columns & apart:
            yield unfit(
                f"{_target(sink)} has a second unique index, {index.name} on "
                f"({', '.join(index.columns)}): MySQL would also overwrite rows that share that "
                "one",
                f"drop it, or make keys=({shown}) the only one",
            )


def _target(sink: "MySQLSink") -> str:
    return server.quoted(sink.address.database, sink.table)


def _statement(sink: "MySQLSink", schema: Schema, facts: ServerFacts) -> str:
    database = sink.address.database
    return table.create_statement(database, sink.table, schema, sink.keys, facts.version)

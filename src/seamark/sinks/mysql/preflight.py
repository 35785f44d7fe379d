"""Checks the real server before any row is written; each failure is a finding.

`check` raises the first error of a start, and makes what the job needs. `inspect` makes nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode, Severity
from seamark.sinks.internal.changes import target_columns
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql import ledger, table
from seamark.sinks.mysql.committable import owner_of, stage_prefix

if TYPE_CHECKING:
    from seamark.sinks.mysql.sink import MySQLSink

_log = logging.getLogger(__name__)
_TIMEOUT_S = 30.0
_OLDEST = {"MariaDB": (10, 5, 2), "MySQL": (8, 0, 0)}
"""Older servers roll back a prepared XA transaction when its connection closes, or lack NOWAIT."""
_ACCESS_DENIED = (1044, 1045, 1142, 1143, 1227, 1370, 1410)


def check(sink: MySQLSink, context: SinkContext, name: str) -> None:
    """Raise PreflightError for the first error, log warnings. Creates the ledger, and a missing
    table if the sink may."""
    with _connected(sink, name) as connection:
        checks = _Check(sink, context, name, connection)
        checks.run(make=True)
    for finding in checks.warnings:
        _log.warning("%s", finding)


def inspect(sink: MySQLSink, context: SinkContext, name: str) -> list[Finding]:
    """Return the warnings and the first error; changes nothing."""
    warnings: list[Finding] = []
    try:
        with _connected(sink, name) as connection:
            checks = _Check(sink, context, name, connection)
            warnings = checks.warnings
            checks.run(make=False)
    except PreflightError as error:
        assert error.finding is not None
        return [error.finding, *warnings]
    return warnings


@contextlib.contextmanager
def _connected(sink: MySQLSink, name: str) -> Iterator[Any]:
    errors = server.driver().MySQLError
    address = sink.address
    try:
        connection = server.connect(address, timeout_s=_TIMEOUT_S, lock_timeout_s=10)
    except (errors, OSError) as error:
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
        except errors as error:
            code, remedy = FindingCode.SV002, "see the server's message"
            if server.number(error) in _ACCESS_DENIED:
                rights = "CREATE, DROP, SELECT, INSERT, UPDATE, DELETE"
                code = FindingCode.SV003
                remedy = f"GRANT {rights} ON {server.quoted(address.database)}.* TO the user"
            found = f"the server refuses: {error}"
            raise PreflightError(Finding(code, name, found, remedy)) from error


class _Check:
    def __init__(self, sink: MySQLSink, context: SinkContext, name: str, connection: Any) -> None:
        self._sink = sink
        self._context = context
        self._schema = target_columns(context.schema, sink.op)
        self._name = name
        self._connection = connection
        self._database = sink.address.database
        self._table = server.quoted(self._database, sink.table)
        self.warnings: list[Finding] = []

    def run(self, *, make: bool) -> None:
        """Make every check; with `make` also the ledger, a missing table, and a stage on trial."""
        self._check_server()
        if make:
            ledger.prepare(self._connection, self._database)
            self._check_engine(ledger.TABLE)
        if make or not self._sink.create_table:
            self._make_table()
        elif not table.read_engine(self._connection, self._database, self._sink.table):
            return
        self._check_engine(self._sink.table)
        self._check_columns()
        if self._sink.mode == "upsert":
            self._check_keys()
        if self._sink.mode == "xa":
            self._check_xa()
        elif make:
            self._check_stage()

    def _refused(
        self, code: FindingCode, found: str, remedy: str, severity: Severity | None = None
    ) -> PreflightError:
        return PreflightError(Finding(code, self._name, found, remedy, severity))

    def _check_server(self) -> None:
        ((version, flush, infile),) = server.rows(
            self._connection,
            "SELECT @@version, @@innodb_flush_log_at_trx_commit, @@local_infile",
        )
        self._version = str(version)
        kind = "MariaDB" if "mariadb" in self._version.lower() else "MySQL"
        oldest = _OLDEST[kind]
        if table.version_of(self._version) < oldest:
            raise self._refused(
                FindingCode.SV002,
                f"the server is {self._version}",
                f"at least {kind} {'.'.join(map(str, oldest))} is needed: older ones drop prepared "
                "transactions, or cannot tell how one ended",
            )
        if int(flush) != 1:
            # 0 loses a second of commits with the process, 2 with the machine.
            tell = "innodb_flush_log_at_trx_commit is %d: rows that the server has said are durable"
            what = f"{tell % int(flush)} can be gone after it crashes"
            if int(flush) == 0:
                raise self._refused(FindingCode.SV006, what, "set it to 1", Severity.ERROR)
            what = f"{what} with its machine"
            self.warnings.append(Finding(FindingCode.SV006, self._name, what, "set it to 1"))
        if not int(infile):
            _log.info("%s: local_infile is off, so rows go by INSERT, which is slower; set "
                      "local_infile=1 at the server", self._name)  # fmt: skip

    def _check_engine(self, name: str) -> None:
        engine = table.read_engine(self._connection, self._database, name)
        if engine.lower() != "innodb":
            raise self._refused(
                FindingCode.SV005,
                f"{server.quoted(self._database, name)} is {engine or 'not visible'}, and only "
                "InnoDB tables have the transactions that exactly-once needs",
                "ALTER TABLE … ENGINE=InnoDB, or choose another table",
            )

    def _make_table(self) -> None:
        if table.read_engine(self._connection, self._database, self._sink.table):
            return
        statement = table.create_statement(
            self._database, self._sink.table, self._schema, self._sink.keys, self._version
        )
        if not self._sink.create_table or not self._schema:
            how = f": {statement}" if self._schema else ""
            raise self._refused(
                FindingCode.SV004,
                f"the table {self._table} does not exist",
                f"create it, or let the sink do so with create_table=True{how}",
            )
        server.execute(self._connection, statement)
        _log.info("%s: made the table: %s", self._name, statement)

    def _check_columns(self) -> None:
        found = table.read_columns(self._connection, self._database, self._sink.table)
        self._columns = {column.name.lower(): column for column in found}
        schema = self._schema
        if not schema:
            return
        given = {column.name.lower() for column in schema}
        for column in schema:
            target = self._columns.get(column.name.lower())
            wanted = table.column_type(column, column.name in self._sink.keys)
            if target is None:
                raise self._refused(
                    FindingCode.SV005,
                    f"{self._table} has no column {column.name!r} (it has "
                    f"{', '.join(c.name for c in found)})",
                    f"drop it from the DataFrame, or ALTER TABLE {self._table} ADD COLUMN "
                    f"{server.quoted(column.name)} {wanted}",
                )
            if why := table.misfit(column, target):
                raise self._refused(
                    FindingCode.SV005,
                    f"column {column.name!r} is {column.type} in the DataFrame, and "
                    f"{target.data_type} in {self._table} {why}",
                    f"convert it in the DataFrame, or ALTER TABLE {self._table} MODIFY "
                    f"{server.quoted(column.name)} {wanted}",
                )
        for target in found:
            if target.must_be_given and not target.generated and target.name.lower() not in given:
                raise self._refused(
                    FindingCode.SV005,
                    f"column {target.name!r} of {self._table} is NOT NULL, has no default and is "
                    "not in the DataFrame",
                    "select it, or give it a default",
                )
        # Inserts nothing: the server only checks the privilege.
        names = ", ".join(server.quoted(column.name) for column in schema)
        nulls = ", ".join("NULL" for _ in schema)
        server.execute(
            self._connection,
            f"INSERT INTO {self._table} ({names}) SELECT {nulls} FROM DUAL WHERE FALSE",
        )

    def _check_keys(self) -> None:
        keys = {key.lower() for key in self._sink.keys}
        given = {column.name.lower() for column in self._schema}
        indexes = table.read_unique_indexes(self._connection, self._database, self._sink.table)
        shown = ", ".join(self._sink.keys)
        if not any({name.lower() for name in index.columns} == keys for index in indexes):
            raise self._refused(
                FindingCode.SV005,
                f"{self._table} has no unique index on exactly ({shown}), by which rows could be "
                "found again",
                f"ALTER TABLE {self._table} ADD PRIMARY KEY "
                f"({', '.join(map(server.quoted, self._sink.keys))})",
            )
        for index in indexes:
            parts = {name.lower() for name in index.columns}
            if parts != keys and parts <= given:
                raise self._refused(
                    FindingCode.SV005,
                    f"{self._table} has a second unique index, {index.name} on "
                    f"({', '.join(index.columns)}): MySQL would also overwrite rows that share "
                    "that one",
                    f"drop it, or make keys=({shown}) the only one",
                )

    def _check_xa(self) -> None:
        galera = server.rows(self._connection, "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'")
        if galera and str(galera[0][1]).upper() == "ON":
            raise self._refused(
                FindingCode.SV002,
                "the server is part of a Galera cluster, which has no XA transactions",
                "take mode='staged'",
            )
        try:
            server.prepared_xids(self._connection)
        except server.driver().MySQLError as error:
            raise self._refused(
                FindingCode.SV003,
                f"prepared transactions cannot be listed: {error}",
                "GRANT XA_RECOVER_ADMIN ON *.* TO the user, or take mode='staged'",
            ) from error

    def _check_stage(self) -> None:
        """Create and drop a stage. Without a comment it belongs to no transaction."""
        owner = owner_of(self._context.job_id, self._context.sink_uid)
        stage = server.quoted(self._database, f"{stage_prefix(owner)}preflight")
        server.execute(self._connection, f"DROP TABLE IF EXISTS {stage}")
        server.execute(
            self._connection,
            f"CREATE TABLE {stage} ENGINE=InnoDB AS SELECT * FROM {self._table} WHERE FALSE",
        )
        server.execute(self._connection, f"DROP TABLE {stage}")

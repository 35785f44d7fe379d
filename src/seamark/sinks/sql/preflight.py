"""Checks the database when a job starts, before any row is written."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from seamark.contracts.attempt_name import random_token
from seamark.contracts.sink import SinkContext
from seamark.files.local import make_directory, obstacle
from seamark.model.errors import PreflightError
from seamark.model.findings import Finding, FindingCode
from seamark.model.schema import Schema
from seamark.sinks.internal.changes import STAGED_OP, target_columns
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.internal.servers import Findings
from seamark.sinks.sql import tables
from seamark.sinks.sql.committable import SqlCommittable, owner_of
from seamark.sinks.sql.database import Session, failures, is_lasting
from seamark.sinks.sql.tables import Target
from seamark.sinks.sql.types import holds

if TYPE_CHECKING:
    from seamark.sinks.sql.sink import SqlSink


def look(sink: "SqlSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """Yield every finding. A `start` creates the table, if the sink is asked to, ledger and stage,
    and tries the commit's statements on no rows. Raises PreflightError without an answer."""
    database, schema = sink.database, target_columns(context.schema, sink.op)
    if database.file is not None and (problem := obstacle(database.file.parent)):
        yield Finding(FindingCode.SV003, name, str(problem), "allow it, or change SqlSink url")
        return
    place, table = sink.table_name
    ask = partial(tables.describe, dialect=database.dialect, place=place, name=table, keys=True)
    with _answers(sink, name), closing(Session(database)) as session:
        if database.file is not None and not database.file.exists() and not start:
            return  # it is made at the start
        if start:
            database.prepare()
            if database.dialect == "duckdb":
                make_directory(database.staging_root / owner_of(context))
        target = session.run(ask, create=True)
        missing = target is None and sink.create_table
        if start and missing and context.schema:
            _create(session, tables.new_target(place, table, schema, sink.keys), name)
            target = session.run(ask)
        if start or not missing:
            yield from _findings(sink, name, schema, target)
        if start:
            tables.create(session, tables.ledger_table(place))
            yield from _ledger_findings(session, name, place)
        if start and target is not None and schema:
            _try_commit(session, sink, target, schema)


@contextmanager
def _answers(sink: "SqlSink", name: str) -> Iterator[None]:
    """Make PreflightError of the database's errors."""
    database = sink.database
    try:
        yield
    except failures() as error:
        lasting = is_lasting(error)
        remedy = (
            "see the database's message; the user needs CREATE, and SELECT, INSERT and DELETE on "
            "the target"
            if lasting
            else f"check that {database.shown} is right, that the database runs and can be reached "
            "from the driver and from every executor"
        )
        code = FindingCode.SV002 if lasting else FindingCode.SV001
        found = f"it cannot be used: {database.said(error)}"
        raise PreflightError(Finding(code, name, found, remedy)) from error


def _create(session: Session, table: Any, name: str) -> None:
    longest = session.run(lambda connection: connection.dialect.max_identifier_length)
    for column in table.columns:
        if len(column.name.encode()) > longest:  # PostgreSQL cuts it off
            found = f"column {column.name!r} has a name of more than {longest} bytes"
            remedy = "rename it with withColumnRenamed"
            raise PreflightError(Finding(FindingCode.SV005, name, found, remedy))
    tables.create(session, table)


def _try_commit(session: Session, sink: "SqlSink", target: Target, schema: Schema) -> None:
    """Make the stage, and run the commit's statements for a transaction without rows: a dialect
    that refuses one of them, or a right that is missing, shows now."""
    columns = [column for c in schema if (column := target.find(c.name)) is not None]
    if sink.database.dialect == "duckdb":  # tasks make the stages, in files
        rows = sa.table(
            target.name, *(sa.column(c.name) for c in columns), schema=target.place or None
        )
        nothing = sa.insert(rows).from_select([*rows.c], sa.select(rows).where(sa.false()))
        session.run(lambda connection: connection.execute(nothing))
        return
    stage = tables.stage_table(target, columns, with_op=sink.op is not None)
    tables.create(session, stage)
    keys = [target.find(key) for key in sink.keys]
    nothing = SqlCommittable(
        "none/none/g0-e0-p0-a0-0", "", "", 0, 0, 0, target.place, stage.name, target.name,
        tuple(c.name for c in columns), tuple(c.name for c in keys if c is not None),
        STAGED_OP if sink.op else "",
    )  # fmt: skip
    session.run(lambda connection: tables.move(connection, nothing))


def _ledger_findings(session: Session, name: str, place: str) -> Findings:
    """The ledger would prove nothing: two rows may have one key, or one stays after a rollback."""
    handle = f"none/none/g0-e0-p0-a0-{random_token()}"
    nothing = SqlCommittable(handle, "", "", 0, 0, 0, place, "none")

    def twice(connection: Any) -> None:
        for _ in range(2):
            tables.record(connection, nothing, Fate.ABORTED)

    try:
        session.run(twice)
    except tables.EndedMeanwhileError:
        refused = True
    except failures() as error:  # at COMMIT, or for another reason
        if not (refused := is_lasting(error)):
            raise
    else:
        refused = False
    if session.run(lambda connection: tables.outcomes(connection, [nothing])):
        session.run(lambda connection: tables.forget(connection, nothing))
        found = f"a row of {tables.LEDGER} stays after the end of a transaction that was refused"
        remedy = "take autocommit out of the url; a database without transactions cannot be used"
        if not refused:
            found = f"{tables.LEDGER} takes two rows of one primary key"
            remedy = "give a database that enforces primary keys"
        yield Finding(FindingCode.SV002, name, found, remedy)


def _findings(sink: "SqlSink", name: str, schema: Schema, target: Target | None) -> Findings:
    """The table is missing, or does not fit the rows."""
    if target is None:
        found = "there is no such table, or this user may not see it"
        yield Finding(FindingCode.SV004, name, found, "make it, or give SqlSink create_table=True")
        return

    def unfit(found: str, remedy: str) -> Finding:
        return Finding(FindingCode.SV005, name, found, remedy)

    if not target.is_table:
        yield unfit(f"{target.name} is no table", "give the table that it reads")
    if target.engine not in ("", "InnoDB"):
        found = f"{target.name} has the engine {target.engine}, which has no transactions"
        yield unfit(found, f"ALTER TABLE {sink.table} ENGINE=InnoDB")
    given = set()
    for column in schema:
        into = target.find(column.name)
        if into is None:
            listed = ", ".join(c.name for c in target.columns)
            found = f"the table has no column {column.name!r} (it has {listed})"
            yield unfit(found, "add it with ALTER TABLE, or drop it from the DataFrame")
            continue
        given.add(into.name)
        if into.computed:
            found = f"column {into.name!r} is computed by the table"
            yield unfit(found, "drop it from the DataFrame")
        elif not holds(into.form, column.type, key=column.name in sink.keys):
            yield unfit(
                f"column {into.name!r} has type {_shown(into.type)}, which would alter values of "
                f"the DataFrame's {column.type}",
                "CAST it in the DataFrame, or alter the column (docs/sinks/sql.md has what fits)",
            )
        elif into.not_null and column.name not in sink.keys and sink.database.dialect == "duckdb":
            found = f"column {into.name!r} is NOT NULL, and tasks cannot ask DuckDB for its table"
            yield unfit(found, "ALTER TABLE … ALTER COLUMN … DROP NOT NULL, or make it a key")
    for into in target.columns if schema else ():
        if into.not_null and not into.filled and not into.computed and into.name not in given:
            found = f"column {into.name!r} is NOT NULL, has no default and is not in the DataFrame"
            yield unfit(found, "select it, or give it a default")
    keys = {c.name for key in sink.keys if (c := target.find(key)) is not None}
    if sink.keys and keys not in target.keys:
        listed = ", ".join(sink.keys)
        found = f"the table has no primary key or unique index on exactly the keys ({listed})"
        yield unfit(found, f"ALTER TABLE {sink.table} ADD PRIMARY KEY ({listed})")


def _shown(of: Any) -> str:
    try:
        return str(of)
    except sa.exc.CompileError:  # a type of one dialect's alone
        return type(of).__name__

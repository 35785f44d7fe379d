"""Checks the database before any row is written."""

import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from seamark.contracts.sink import SinkContext
from seamark.files.local import make_directory, obstacle
from seamark.model.findings import Finding, FindingCode
from seamark.model.schema import Schema
from seamark.sinks.internal.servers import Findings, usable
from seamark.sinks.internal.staged_files import staging_directory
from seamark.sinks.sqlite import database, merging

if TYPE_CHECKING:
    from seamark.sinks.sqlite.sink import SQLiteSink


def look(sink: "SQLiteSink", context: SinkContext, name: str, *, start: bool) -> Findings:
    """The directory is missing or not to be written, or the table does not fit the rows. A `start`
    creates database, ledger and staging area. Raises PreflightError if the database cannot be
    read."""
    if sqlite3.sqlite_version_info < database.OLDEST:
        found = f"this Python has SQLite {sqlite3.sqlite_version}"
        oldest = ".".join(map(str, database.OLDEST))
        yield Finding(FindingCode.SV002, name, found, f"take one with SQLite {oldest} or later")
        return
    target = sink.target
    directory = Path(target.path).parent
    if not directory.is_dir():
        found = f"the directory {directory} does not exist"
        yield Finding(FindingCode.SV004, name, found, "make it, or change SQLiteSink path")
        return
    if problem := obstacle(directory):
        yield Finding(FindingCode.SV003, name, str(problem), "allow it, or change SQLiteSink path")
        return
    with _usable(name):
        if not sink.create_table and not database.ask_table(target).columns:
            found = f"there is no table {target.table!r} in {target.path}"
            yield Finding(FindingCode.SV004, name, found, "make it, or give create_table=True")
            return
        misfits = list(database.misfits(target, context.schema)) if context.schema else []
    for why, remedy in misfits:
        yield Finding(FindingCode.SV005, f"sink {context.sink_uid!r}", why, remedy)
    if start:
        with _usable(name):
            database.prepare(target.path)
            make_directory(staging_directory(sink.staging_root, context))
            if not misfits and all(column.type for column in context.schema):
                _make_table(target, context.schema)


def _make_table(target: database.Target, schema: Schema) -> None:
    """Create a missing table: whoever reads before the first rows finds none, not an error."""
    kinds = {c.name: database.TYPES.get(c.type, "TEXT") for c in schema if c.name != target.op}
    if kinds and not database.ask_table(target).columns:  # else a writer's lock is waited for
        with database.transaction(target.path) as cursor:
            merging.create(cursor, target.table, kinds, target.keys)


def _usable(name: str) -> AbstractContextManager[None]:
    return usable(
        name,
        (sqlite3.Error, OSError),
        "give a SQLite database that this user may write and that no program keeps locked",
        FindingCode.SV002,
    )

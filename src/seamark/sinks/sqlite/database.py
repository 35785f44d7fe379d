"""The database: connections, the ledger, and the SQL statements on both; `merging.py` has those on
the table's rows.

The ledger, `_seamark_ledger`, holds one row per ended transaction. ``committed`` is written in the
SQLite transaction of the inserted rows, so it proves that they are visible. ``aborted`` is a
tombstone: it makes a late commit fail. The primary key lets only one of them stand.

All access goes through Python's `sqlite3`, as the program's own does. A second copy of SQLite in
the process, an Arrow driver's for example, would break its locks: POSIX drops a process's locks on
a file when any part of it closes that file (sqlite.org/howtocorrupt.html, 2.2.1).
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa

from seamark.contracts.record_batches import in_parts
from seamark.model.schema import Column, Schema
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.outcomes import LEDGER_EPOCHS, Fate
from seamark.sinks.internal.staged_files import StagedFile

BUSY_TIMEOUT_S = 2.0
OLDEST = (3, 37)
"""The first SQLite with STRICT tables and `pragma_table_list`."""

_LEDGER = """
CREATE TABLE IF NOT EXISTS _seamark_ledger (
    handle TEXT NOT NULL PRIMARY KEY, job_id TEXT NOT NULL, sink_uid TEXT NOT NULL,
    generation INTEGER NOT NULL, epoch INTEGER NOT NULL, rows INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('committed', 'aborted'))
) WITHOUT ROWID
"""
_LEDGER_MISSING = "no such table: _seamark_ledger"
_PASSING = (5, 6, 7, 8, 10, 13, 14, 15)
"""BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL (sqlite.org/rescode.html)."""
_PASSING_TEXTS = (
    "is locked", "disk is full", "disk I/O error", "readonly database", "unable to open",
    "out of memory", "allocate memory", "locking protocol", _LEDGER_MISSING,
)  # fmt: skip
_AFFINITIES = {
    "INT": "INTEGER", "CHAR": "TEXT", "CLOB": "TEXT", "TEXT": "TEXT", "BLOB": "BLOB",
    "REAL": "REAL", "FLOA": "REAL", "DOUB": "REAL", "": "NUMERIC",
}  # fmt: skip
"""By a part of the declared type; the first in it counts."""
TYPES = dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint"), "INTEGER") | {
    "float": "REAL", "double": "REAL", "binary": "BLOB"
}  # fmt: skip
"""SQLite's type of a new column, by Spark's; TEXT for the others (`merging.move`)."""
_LEDGER_INDEX = """
CREATE INDEX IF NOT EXISTS _seamark_ledger_by_epoch ON _seamark_ledger (job_id, sink_uid, epoch)
"""


@dataclass(frozen=True)
class Target:
    """A table, and how rows get into it: appended or, with `keys`, replacing and deleting the rows
    of their keys as the column `op` says."""

    path: str
    table: str
    keys: tuple[str, ...] = ()
    op: str | None = None


def may_pass(error: sqlite3.Error) -> bool:
    """Whether an error may be gone at the next try: a lock, or the disk. Texts may be a trigger's
    own; Python 3.10 knows no codes, and there the kind of error tells those apart."""
    if (code := getattr(error, "sqlite_errorcode", None)) is not None:
        return code & 0xFF in _PASSING or str(error) == _LEDGER_MISSING
    signs = any(sign in str(error) for sign in _PASSING_TEXTS)
    return isinstance(error, sqlite3.OperationalError) and signs


@contextlib.contextmanager
def connect(path: str) -> Iterator[sqlite3.Cursor]:
    """Yield a cursor outside any transaction; usable in the calling thread."""
    connection = sqlite3.connect(path, BUSY_TIMEOUT_S, isolation_level=None)
    with contextlib.closing(connection):
        yield connection.cursor()


@contextlib.contextmanager
def transaction(path: str) -> Iterator[sqlite3.Cursor]:
    """Yield a cursor inside a write transaction; commit durably at the end. Raises OSError for a
    missing database: SQLite would make another, and on what is no longer mounted there."""
    Path(path).stat()
    with connect(path) as cursor:
        # A commit must survive a power failure: staged files are deleted right after it.
        cursor.execute("PRAGMA synchronous=FULL")
        # Immediate: reading the ledger and writing it later in one transaction is never refused.
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
            cursor.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                cursor.execute("ROLLBACK")
            raise


def prepare(path: str) -> None:
    """Create the database and the ledger if missing, and turn on WAL mode."""
    with connect(path) as cursor:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("SELECT count(*) FROM pragma_table_info('_seamark_ledger')")
        if cursor.fetchone()[0] == 0:
            cursor.execute(_LEDGER)
            cursor.execute(_LEDGER_INDEX)


@dataclass(frozen=True)
class TableFacts:
    """A table. `columns` are its columns, each with whether it must be given, its declared type (""
    keeps each value as it is), and whether it refuses values of other types; none if there is no
    table. `keyed`: whether a row can be found by the target's keys. `kind`: "table", or what else
    it is. `fault`: why SQLite can insert no row."""

    columns: tuple[tuple[str, bool, str, bool], ...] = ()
    keyed: bool = True
    kind: str = "table"
    fault: str = ""


def ask_table(target: Target) -> TableFacts:
    """Describe the table; makes no database."""
    if not Path(target.path).exists():
        return TableFacts()
    with connect(target.path) as cursor:
        return describe(cursor, target)


def encoding(path: str) -> str:
    """Return what the database keeps texts in; a new one is of UTF-8. Makes none."""
    if not Path(path).exists():
        return "UTF-8"
    with connect(path) as cursor:
        return str(cursor.execute("PRAGMA encoding").fetchone()[0])


def describe(cursor: sqlite3.Cursor, target: Target) -> TableFacts:
    """Describe the table of an open database."""
    # Generated columns are hidden here, and cannot be inserted into. A row's number, the only key
    # column of type INTEGER, is filled by itself.
    cursor.execute(
        'SELECT name, "notnull" AND dflt_value IS NULL AND NOT number, '
        "iif(strict AND upper(type) = 'ANY', '', type), strict OR number, kind "
        "FROM (SELECT c.*, strict, t.type AS kind, pk AND upper(c.type) = 'INTEGER' "
        "AND 1 = sum(pk > 0) OVER () AND NOT wr AS number "
        "FROM pragma_table_info(?) AS c, pragma_table_list(?) AS t)",
        (target.table, target.table),
    )
    rows = cursor.fetchall()
    if not rows:
        return TableFacts()
    columns = tuple((name, bool(must), kind, bool(strict)) for name, must, kind, strict, _ in rows)
    keyed = not target.keys or _has_key(cursor, target.table, target.keys)
    kind = next((kind for *_, kind in rows if kind != "table"), "table")
    return TableFacts(columns, keyed, kind, _fault(cursor, target, [name for name, *_ in rows]))


def _fault(cursor: sqlite3.Cursor, target: Target, columns: Sequence[str]) -> str:
    """Return why SQLite cannot prepare an insert; "" if it can. A CHECK, an index or a trigger may
    need a function of another program's, or a table that is gone."""
    names, table = list(map(quoted, columns)), quoted(target.table)
    listed = ", ".join(names)
    insert = f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {table} WHERE true"
    if target.keys:
        changes = ", ".join(f"{name} = excluded.{name}" for name in names)
        insert += f" ON CONFLICT ({', '.join(map(quoted, target.keys))}) DO UPDATE SET {changes}"
    try:
        for statement in (insert, f"DELETE FROM {table}") if target.op else (insert,):
            cursor.execute(f"EXPLAIN {statement}")
        return ""
    except sqlite3.OperationalError as error:
        if may_pass(error):
            raise
        return str(error)


def misfits(
    target: Target, schema: Schema, facts: TableFacts | None = None
) -> Iterator[tuple[str, str]]:
    """Yield why the table cannot take rows of these columns, each with the remedy; nothing if it
    can, or is missing. A type "" is not judged. Without `facts` asks the database."""
    facts = facts or ask_table(target)
    what = f"SQLite table {target.table} in {target.path}"
    if facts.kind != "table":
        if facts.kind == "view":
            yield f"{what} is a view", "give the table that it reads"
        else:  # an R-tree keeps 32 bits of a double
            yield f"{what} is a {facts.kind} table", "give an ordinary one"
        return
    written = [column for column in schema if column.name != target.op]
    declared = {name.lower(): (kind, strict) for name, _, kind, strict in facts.columns}
    given = {column.name.lower() for column in written}
    for column in written if facts.columns else ():
        if (into := declared.get(column.name.lower())) is None:
            listed = ", ".join(name for name, *_ in facts.columns)
            yield (
                f"{what} has no column {column.name!r} (it has {listed})",
                "add it with ALTER TABLE, or drop it from the DataFrame",
            )
        elif altered := _altered(column, *into):
            yield f"{what}: column {column.name!r} is declared {into[0]}, {altered[0]}", altered[1]
    for name, must, *_ in facts.columns:
        if must and name.lower() not in given:
            yield (
                f"{what}: column {name!r} is NOT NULL, has no default and is not in the DataFrame",
                "select it, or give it a default",
            )
    if facts.keyed and facts.fault:
        yield f"{what} can take no row: {facts.fault}", "mend the table's definition"
    elif not facts.keyed:
        listed = ", ".join(map(quoted, target.keys))
        index = quoted(f"{target.table}_by_key")
        yield (
            f"{what} has no primary key or unique index on exactly the keys ({listed}) that "
            "compares every byte (BINARY), or has a second index on them that does not",
            f"drop that, or CREATE UNIQUE INDEX {index} ON {quoted(target.table)} ({listed})",
        )


def _altered(column: Column, declared: str, strict: bool) -> tuple[str, str] | None:
    """Return how a column of this declared type would alter values, and the remedy: texts that look
    like numbers become such, doubles have 53 bits, and 15 digits as texts. Texts of dates, times
    and JSON do not. A strict column refuses them."""
    affinity = next(a for part, a in _AFFINITIES.items() if part in (declared or "BLOB").upper())
    as_text = column.type.startswith(("string", "varchar", "char", "decimal"))
    wanted = {("bigint", "REAL"): "INTEGER", ("double", "TEXT"): "REAL"}.get(
        (column.type, affinity)
    )
    if as_text and affinity in ("INTEGER", "REAL", "NUMERIC"):
        wanted = "TEXT"
    stored = TYPES.get(column.type, "TEXT")
    fits = {"INTEGER": ("INTEGER", "REAL", "TEXT"), "REAL": ("REAL", "TEXT")}.get(stored, (stored,))
    if wanted is None and strict and column.type and declared and affinity not in fits:
        return f"which refuses the DataFrame's {column.type}", f"declare it {stored}"
    if wanted is None:
        return None
    return (
        f"whose affinity {affinity} alters values of the DataFrame's {column.type}",
        f"declare it {wanted}, or CAST it in the DataFrame",
    )


def _has_key(cursor: sqlite3.Cursor, table: str, keys: Sequence[str]) -> bool:
    """Return whether a row can be found by these columns, as `merging.py` does."""
    wanted = sorted(key.lower() for key in keys)
    cursor.execute("SELECT name, type FROM pragma_table_info(?) WHERE pk", (table,))
    if [(n.lower(), t.upper()) for n, t in cursor.fetchall()] == [(wanted[0], "INTEGER")]:
        return len(wanted) == 1  # the row's number, which has no index
    cursor.execute(
        "SELECT group_concat(lower(c.name), char(0)), min(upper(c.coll) = 'BINARY' AND c.cid >= 0) "
        'FROM pragma_index_list(?) AS i, pragma_index_xinfo(i.name) AS c WHERE i."unique" '
        "AND NOT i.partial AND c.key GROUP BY i.name",
        (table,),
    )
    # ON CONFLICT may go by any of them.
    exact = [
        all_ for names, all_ in cursor.fetchall() if names and sorted(names.split("\0")) == wanted
    ]
    return bool(exact) and all(exact)


def row_number(cursor: sqlite3.Cursor, table: str) -> str:
    """Return SQL of a row's number; a column may have one of its names, or a table none."""
    cursor.execute(
        'SELECT value FROM json_each(\'["rowid", "oid", "_rowid_"]\') WHERE value NOT IN '
        "(SELECT lower(name) FROM pragma_table_xinfo(?)) "
        "AND NOT (SELECT wr FROM pragma_table_list(?))",
        (table, table),
    )
    free = cursor.fetchone()
    return free[0] if free else "row_number() OVER ()"


def definition(path: str, table: str) -> list[str]:
    """Return the statements that create the table, and the indexes that may refuse a row: unique
    ones, and those of expressions or with a condition. None if it is missing."""
    if not Path(path).exists():
        return []
    with connect(path) as cursor:
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE lower(tbl_name) = lower(?) AND (type = 'table' "
            "OR type = 'index' AND (sql LIKE 'CREATE UNIQUE%' OR sql LIKE '%WHERE%' "
            "OR sql IS NOT NULL AND EXISTS "
            "(SELECT 1 FROM pragma_index_xinfo(sqlite_master.name) WHERE cid = -2))) "
            "ORDER BY type DESC",
            (table,),
        )
        return [row[0] for row in cursor.fetchall()]


def open_scratch() -> sqlite3.Connection:
    """Return a connection to a new, private database, deleted when closed, for one thread at a
    time. A temporary file holds the overflow of its cache."""
    return sqlite3.connect("", isolation_level=None, check_same_thread=False)


def insert(cursor: sqlite3.Cursor, table: str, rows: pa.RecordBatch | pa.Table) -> None:
    """Insert rows by their columns' names. `table` is quoted."""
    names = ", ".join(map(quoted, rows.schema.names))
    batches = rows.to_batches() if isinstance(rows, pa.Table) else [rows]
    for part in chain.from_iterable(map(in_parts, batches)):
        columns, places = zip(*map(_bound, part.columns), strict=True)
        cursor.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({', '.join(places)})",
            zip(*columns, strict=True),
        )


def _bound(column: pa.Array) -> tuple[list[object], str]:
    """Return a column's values, and the SQL of one of them. A text that is not UTF-8 stays as it
    is; Python has no str for it."""
    try:
        return column.to_pylist(), "?"
    except UnicodeDecodeError:
        return column.cast(pa.binary()).to_pylist(), "CAST(? AS TEXT)"


def fate(cursor: sqlite3.Cursor, handle: str) -> Fate | None:
    """Return how the transaction ended, None if it has not."""
    cursor.execute("SELECT outcome FROM _seamark_ledger WHERE handle = ?", (handle,))
    row = cursor.fetchone()
    return None if row is None else Fate(row[0])


def record(cursor: sqlite3.Cursor, committable: StagedFile, how: Fate) -> None:
    """Write the transaction's ledger row."""
    c = committable
    cursor.execute(
        "INSERT INTO _seamark_ledger VALUES (?, ?, ?, ?, ?, ?, ?)",
        (c.handle, c.job_id, c.sink_uid, c.generation, c.epoch, c.rows, how.value),
    )


def ended(path: str, job_id: str, sink_uid: str) -> set[str]:
    """Return the handles of one job's sink with a ledger row."""
    with connect(path) as cursor:
        cursor.execute(
            "SELECT handle FROM _seamark_ledger WHERE job_id = ? AND sink_uid = ?",
            (job_id, sink_uid),
        )
        return {row[0] for row in cursor.fetchall()}


def newest_epoch(cursor: sqlite3.Cursor, job_id: str, sink_uid: str) -> int | None:
    """Return the highest epoch of one job's sink in the ledger; None if it has none."""
    cursor.execute(
        "SELECT max(epoch) FROM _seamark_ledger WHERE job_id = ? AND sink_uid = ?",
        (job_id, sink_uid),
    )
    newest = cursor.fetchone()[0]
    return None if newest is None else int(newest)


def prune(cursor: sqlite3.Cursor, committables: Sequence[StagedFile]) -> None:
    """Delete rows no driver can ask for any more; never the newest."""
    for job_id, sink_uid in {(c.job_id, c.sink_uid) for c in committables}:
        newest = newest_epoch(cursor, job_id, sink_uid)
        if newest is not None:
            cursor.execute(
                "DELETE FROM _seamark_ledger WHERE job_id = ? AND sink_uid = ? AND epoch < ?",
                (job_id, sink_uid, newest - LEDGER_EPOCHS),
            )

"""Staged rows into the table: appended or, with keys, replacing and deleting rows by key.

A staged file says in its schema's metadata which it is, and into which table, so rows staged before
a change of the sink's settings still move as they were meant.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.read_back import DELETE
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.sqlite.database import Target, insert

_TABLE, _KEYS, _OP = b"seamark.table", b"seamark.keys", b"seamark.op"
_SEPARATOR = "\0"
_STAGE = "temp._seamark_stage"


def described(batch: pa.RecordBatch, target: Target) -> pa.RecordBatch:
    """Return the batch with the table, keys and op of its rows in its schema's metadata."""
    texts = {_TABLE: target.table, _KEYS: _SEPARATOR.join(target.keys), _OP: target.op or ""}
    return batch.replace_schema_metadata({name: text.encode() for name, text in texts.items()})


def newest(batch: pa.RecordBatch, target: Target) -> Any:
    """Return the rising indexes of the rows that a table of `target.keys` would have to take: of
    each key the last one, unless it is a delete."""
    columns = {str(i): batch.column(key) for i, key in enumerate(target.keys)}
    table = pa.table({**columns, "row": np.arange(batch.num_rows)})
    last = table.group_by(list(columns)).aggregate([("row", "max")])["row_max"]
    rows = np.sort(np.asarray(last))
    if target.op is None:
        return rows
    deleted = np.asarray(pc.equal(batch.column(target.op), DELETE))
    return rows[~deleted[rows]]


def target_of(rows: pa.Table, sinks: Target) -> Target:
    """Return where staged rows go; `sinks` is that of rows that do not tell: an older release's."""
    metadata = rows.schema.metadata or {}
    table = metadata.get(_TABLE, sinks.table.encode()).decode()
    keys, op = metadata.get(_KEYS, b"").decode(), metadata.get(_OP, b"").decode() or None
    return Target(sinks.path, table, tuple(keys.split(_SEPARATOR)) if keys else (), op)


def move(cursor: sqlite3.Cursor, into: Target, rows: pa.Table) -> None:
    """Apply staged rows, in their order, inside the caller's transaction. Creates a missing
    table."""
    table, by, op = into.table, into.keys, into.op
    target = f"main.{quoted(table)}"
    kinds = {field.name: _type(field.type) for field in rows.schema if field.name != op}
    create(cursor, table, kinds, by)
    if by:
        _merge(cursor, target, rows, by, op)
    else:
        insert(cursor, target, rows)


def create(
    cursor: sqlite3.Cursor, table: str, kinds: Mapping[str, str], keys: Sequence[str]
) -> None:
    """Create a missing table; `kinds` are SQLite's types of its columns."""
    parts = [f"{quoted(name)} {kind}" for name, kind in kinds.items()]
    if keys:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, keys))})")
    cursor.execute(f"CREATE TABLE IF NOT EXISTS main.{quoted(table)} ({', '.join(parts)})")


def _merge(
    cursor: sqlite3.Cursor, target: str, rows: pa.Table, keys: Sequence[str], op: str | None
) -> None:
    by = ", ".join(map(quoted, keys))
    # In the stage columns have numbers: a user's `rowid` would hide SQLite's own.
    staged = {field.name: f"c{number}" for number, field in enumerate(rows.schema)}
    # With the target's affinities, by which '1' and '01' can be one key.
    parts = ("CAST(NULL AS TEXT)" if name == op else quoted(name) for name in staged)
    listed = ", ".join(map("{} AS {}".format, parts, staged.values()))
    cursor.execute(f"CREATE TEMP TABLE _seamark_stage AS SELECT {listed} FROM {target} WHERE 0")
    insert(cursor, _STAGE, rows.rename_columns(list(staged.values())))
    staged_by, kept = ", ".join(staged[key] for key in keys), ""
    if op is not None:
        # Also a key with a newer row: the row is then made anew, not changed.
        deleted = f"{staged[op]} = '{DELETE}'"
        exactly = ", ".join(f"{quoted(key)} COLLATE BINARY" for key in keys)  # as the index
        cursor.execute(
            f"DELETE FROM {target} WHERE ({exactly}) IN "
            f"(SELECT {staged_by} FROM {_STAGE} WHERE {deleted})"
        )
        kept = f" AND NOT {deleted}"
    names = [field.name for field in rows.schema if field.name != op]
    change = ", ".join(f"{quoted(n)} = excluded.{quoted(n)}" for n in names if n not in keys)
    # The alias: a table may be called `excluded` too.
    cursor.execute(
        f"INSERT INTO {target} AS target ({', '.join(map(quoted, names))}) "
        f"SELECT {', '.join(staged[name] for name in names)} FROM {_STAGE} WHERE rowid IN "
        f"(SELECT max(rowid) FROM {_STAGE} GROUP BY {staged_by}){kept} ORDER BY rowid "
        f"ON CONFLICT ({by}) DO {f'UPDATE SET {change}' if change else 'NOTHING'}"
    )
    cursor.execute(f"DROP TABLE {_STAGE}")


def _type(kind: pa.DataType) -> str:
    """Return a new column's type."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    return "BLOB" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "TEXT"

"""Reads the table back for an audit: every row, without a word on who inserted it."""

import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.sinks.internal.columns import as_written
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.read_back import by_epoch, reading, some_at_a_time
from seamark.sinks.sqlite import database

if TYPE_CHECKING:
    from seamark.sinks.sqlite.sink import SQLiteSink


def read(sink: "SQLiteSink", asked: ReadBack) -> Iterator[FoundRows]:
    """See `ReadableSink`. The rows come by epoch if a column has it: a table does not tell who has
    inserted a row."""
    path, table = sink.path, sink.table
    what = f"sink {asked.context.sink_uid!r}: SQLite table {table} in {path}"
    kinds = [_stored(field.type) for field in asked.schema]
    parts = [
        f"CAST({quoted(field.name)} AS {kind})"
        for field, (kind, _) in zip(asked.schema, kinds, strict=True)
    ]
    if asked.epoch_column:
        parts.append(f"CAST({quoted(asked.epoch_column)} AS INTEGER)")
    with reading(what, sqlite3.Error), database.connect(path) as cursor:
        parts.append(database.row_number(cursor, table))
        cursor.connection.text_factory = bytes  # a text need not be UTF-8
        cursor.execute(f"SELECT {', '.join(parts)} FROM {quoted(table)}")
        for fetched in some_at_a_time(cursor.fetchmany):
            values = list(zip(*fetched, strict=True))
            columns = [
                pa.array(column, pa.binary() if kind is pa.string() else kind).view(kind)
                for column, (_, kind) in zip(values, kinds, strict=False)
            ]
            rows = pa.RecordBatch.from_arrays(columns, names=asked.schema.names)
            epochs = pa.array(values[-2], pa.int64()) if asked.epoch_column else None
            yield from by_epoch(
                as_written(rows, asked.schema), epochs, f"table {table}, row", np.array(values[-1])
            )


def _stored(kind: pa.DataType) -> tuple[str, pa.DataType]:
    """Return the type in which SQLite holds values of this one, and Arrow's for its values."""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return "INTEGER", pa.int64()
    if pa.types.is_floating(kind):
        return "REAL", pa.float64()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "BLOB", pa.binary()
    return "TEXT", pa.string()

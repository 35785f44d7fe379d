"""Reads the table back for an audit: every row, without a word on who inserted it.

InnoDB keeps a row's transaction to itself. So a table is compared as a whole, or by a column with
each row's epoch.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError, UserError
from seamark.sinks.internal.columns import as_written
from seamark.sinks.internal.read_back import by_epoch, reading, some_at_a_time
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql.table import BYTES, INTEGERS, TEXTS, TableColumn, read_columns

if TYPE_CHECKING:
    from seamark.sinks.mysql.sink import MySQLSink

_TIMEOUT_S = 120.0
_AS_TEXT = {"decimal", "date", "datetime", "timestamp"}
_ARROW: dict[str, pa.DataType] = {
    **dict.fromkeys(_AS_TEXT | TEXTS, pa.string()),
    **dict.fromkeys(INTEGERS, pa.int64()),
    **dict.fromkeys(BYTES, pa.binary()),
    "double": pa.float64(),
}
"""The types whose values come back as they were written. Of the others the server rounds a FLOAT's
text, cuts the blanks of CHAR, fills up BINARY, and writes JSON in its own form."""


def read(sink: "MySQLSink", asked: ReadBack) -> Iterator[FoundRows]:
    """See `ReadableSink`. The rows come by epoch if a column has it: a table does not tell who has
    inserted a row."""
    name = f"sink {asked.context.sink_uid!r}: {sink.describe()}"
    database = sink.address.database
    with (
        reading(name, (server.driver().MySQLError, OSError)),
        contextlib.closing(
            server.connect(sink.address, timeout_s=_TIMEOUT_S, lock_timeout_s=10)
        ) as connection,
    ):
        columns = {c.name.lower(): c for c in read_columns(connection, database, sink.table)}
        if not columns:
            raise OperationFailedError(f"{name}: the table does not exist")
        columns_asked = [columns.get(field.name.lower()) for field in asked.schema]
        parts = [
            _expression(name, column, field)
            for column, field in zip(columns_asked, asked.schema, strict=True)
        ]
        kinds = [_ARROW[column.data_type] for column in columns_asked if column is not None]
        if asked.epoch_column:
            parts.append(f"CAST({server.quoted(asked.epoch_column)} AS SIGNED)")
            kinds.append(pa.int64())
        target = server.quoted(database, sink.table)
        query = f"SELECT {', '.join(parts)} FROM {target}"
        for arrays in _batches(connection, query, kinds):
            epochs = arrays.pop() if asked.epoch_column else None
            batch = pa.RecordBatch.from_arrays(arrays, names=asked.schema.names)
            rows = as_written(batch, asked.schema)
            yield from by_epoch(rows, epochs, f"table {target}")


def _expression(name: str, column: TableColumn | None, field: pa.Field) -> str:
    if column is None:
        raise UserError(f"{name}: the table has no column {field.name!r} any more")
    sql = server.quoted(column.name)
    if column.data_type in _AS_TEXT:
        return f"CAST({sql} AS CHAR)"
    if column.data_type in _ARROW:
        return sql
    raise UserError(
        f"{name}: column {column.name!r} has type {column.data_type}, whose values the server may "
        "give in another form; tables with such a column cannot be compared"
    )


def _batches(connection: Any, query: str, kinds: list[pa.DataType]) -> Iterator[list[pa.Array]]:
    """Yield the columns of some rows after others, read from the server as they are needed."""
    with connection.cursor(server.driver().cursors.SSCursor) as cursor:
        cursor.execute(query)
        for rows in some_at_a_time(cursor.fetchmany):
            columns = zip(*rows, strict=True)
            yield [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]

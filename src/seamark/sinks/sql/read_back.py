"""Reads the table back for an audit: every row, without a word on who inserted it."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError, UserError
from seamark.sinks.internal.columns import as_written
from seamark.sinks.internal.read_back import by_epoch, reading, some_at_a_time
from seamark.sinks.sql import tables
from seamark.sinks.sql.database import failures
from seamark.sinks.sql.tables import TargetColumn
from seamark.sinks.sql.types import Form

if TYPE_CHECKING:
    from seamark.sinks.sql.sink import SqlSink


def read(sink: "SqlSink", asked: ReadBack) -> Iterator[FoundRows]:
    """See `ReadableSink`. The rows come by epoch if a column has it: a table does not tell who has
    inserted a row."""
    name = f"sink {asked.context.sink_uid!r}: {sink.describe()}"
    database = sink.database
    with reading(name, failures(), database.said), closing(database.connect()) as connection:
        target = tables.describe(connection, database.dialect, *sink.table_name)
        if target is None:
            raise OperationFailedError(f"{name}: the table does not exist")
        wanted = [*asked.schema.names, *([asked.epoch_column] if asked.epoch_column else [])]
        targets = [target.find(one) for one in wanted]
        columns = [column for column in targets if column is not None]
        if len(columns) < len(wanted):
            gone = wanted[targets.index(None)]
            raise UserError(f"{name}: the table has no column {gone!r} any more")
        of = sa.table(target.name, *map(_readable, columns), schema=target.place or None)
        query = sa.select(*(of.c[c.name] for c in columns)).execution_options(stream_results=True)
        result = connection.execute(query)
        for rows in some_at_a_time(result.fetchmany):
            listed = list(zip(*rows, strict=True))
            epochs = pa.array(listed.pop(), pa.int64()) if asked.epoch_column else None
            arrays = [
                _array(values, column.form, field.type)
                for values, column, field in zip(listed, columns, asked.schema, strict=False)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, names=asked.schema.names)
            yield from by_epoch(as_written(batch, asked.schema), epochs, f"table {sink.table}")


def _readable(column: TargetColumn) -> Any:
    # MySQL's own type makes decimals of doubles, and rounds them.
    of = sa.Double() if column.form.kind in ("double", "float") else column.type
    return sa.column(column.name, of)


def _array(values: Any, form: Form, kind: pa.DataType) -> pa.Array:
    """Return a column's values as Arrow's."""
    if form.kind in ("text", "varchar"):
        return pa.array(values, pa.string())
    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else bool(v) for v in values], kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.timestamp("us", kind.tz and "UTC")).cast(kind)
    return pa.array(values, pa.float64() if pa.types.is_floating(kind) else kind)

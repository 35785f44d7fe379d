"""Reads the table back for an audit: every row, without a word on who inserted it."""

from collections.abc import Iterator

import pyarrow as pa

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError
from seamark.sinks.internal.columns import as_written
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.epoch_column import by_epoch
from seamark.sinks.sqlite import database
from seamark.sinks.sqlite.database import Target

_BATCH_ROWS = 65_536


def read(target: Target, asked: ReadBack) -> Iterator[FoundRows]:
    """Yield the rows; by epoch if a column has it."""
    path, table = target.path, target.table
    what = f"sink {asked.context.sink_uid!r}: SQLite table {table} in {path}"
    parts = []
    for number, field in enumerate(asked.schema):
        name = quoted(field.name)
        # The driver takes a column's type from its first rows, so none may be null.
        kind, instead = _stored(field.type)
        parts += [f"CAST(ifnull({name}, {instead}) AS {kind}) AS v{number}"]
        parts += [f"{name} IS NULL AS n{number}"]
    if asked.epoch_column:
        parts.append(f"CAST(ifnull({quoted(asked.epoch_column)}, -1) AS INTEGER) AS epoch")
    try:
        with database.connect(path) as cursor:
            parts.append(f"{database.row_number(cursor, table)} AS place")
            query = f"SELECT {', '.join(parts)} FROM {quoted(table)}"
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(query)
            for batch in cursor.fetch_record_batch():
                if batch.num_rows:
                    rows = as_written(_nulls_back(batch, asked.schema), asked.schema)
                    epochs = batch.column("epoch") if asked.epoch_column else None
                    places = batch.column("place").to_numpy()
                    place = f"table {table}, row"
                    yield from by_epoch(rows, epochs, place, places)
    except database.driver_errors() as error:
        raise OperationFailedError(f"{what} cannot be read: {error}") from error


def _nulls_back(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for number, field in enumerate(schema):
        values = batch.column(f"v{number}")
        null = batch.column(f"n{number}").to_numpy().astype(bool)
        if null.any():
            values = pa.compute.if_else(pa.array(null), pa.scalar(None, values.type), values)
        if pa.types.is_boolean(field.type):
            values = values.cast(pa.bool_())
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _stored(kind: pa.DataType) -> tuple[str, str]:
    """Return the type in which SQLite holds values of this one, and a value for null."""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return "INTEGER", "0"
    if pa.types.is_floating(kind):
        return "REAL", "0.0"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "BLOB", "x''"
    return "TEXT", "''"

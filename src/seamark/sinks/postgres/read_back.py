"""Reads the table back for an audit: each row with the transaction that inserted it.

A row's `xmin` is the low half of its transaction's id. A prepared transaction's id stands in its
committable; a stage was moved by the transaction that wrote its row in the sink's ledger.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError, UserError
from seamark.sinks.internal.columns import as_written
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.read_back import by_epoch, grouped, reading
from seamark.sinks.postgres.connection import BEGIN, driver
from seamark.sinks.postgres.ledger import NAME as LEDGER
from seamark.sinks.postgres.table import Column, describe

if TYPE_CHECKING:
    from seamark.sinks.postgres.sink import PostgresSink

_PLAIN = ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "varchar")
_BLOCK_BYTES = 4 << 20
_EXTRA = "_seamark_extra"
_Writers = Mapping[int, tuple[int, ...]]


def read(sink: "PostgresSink", asked: ReadBack) -> Iterator[FoundRows]:
    """See `ReadableSink`: by transaction, as a row's `xmin` tells, or by epoch if a column has it,
    or without either."""
    name = f"sink {asked.context.sink_uid!r}: {sink.describe()}"
    with reading(name, driver().Error, sink.server.said), sink.server.connect() as connection:
        # A role's own may round numbers.
        connection.execute(f"{BEGIN}; SET LOCAL extra_float_digits = 1")
        table = describe(connection, sink.sql_name)
        if table is None:
            raise OperationFailedError(f"{name}: the table does not exist")
        columns = [table.find(field.name) for field in asked.schema]
        parts = [
            f"{_expression(name, column, field)} AS {quoted(field.name)}"
            for column, field in zip(columns, asked.schema, strict=True)
        ]
        extra, writers = "NULL", None
        if asked.epoch_column:
            extra = f"{quoted(asked.epoch_column)}::int8"
        elif asked.by_transaction:
            extra, writers = "xmin::text::int8", _writers(connection, asked)
        parts.append(f"{extra} AS {quoted(_EXTRA)}")
        query = f"SELECT {', '.join(parts)} FROM {table.sql}"
        for batch in _batches(connection, query, asked.schema):
            rows = as_written(_from_hex(batch, asked.schema), asked.schema)
            extra_column = batch.column(_EXTRA)
            if writers is not None:
                yield from _by_transaction(rows, extra_column, writers, table.sql)
            else:
                of = extra_column if asked.epoch_column else None
                yield from by_epoch(rows, of, f"table {table.sql}")


def _by_transaction(
    rows: pa.RecordBatch, xmins: pa.Array, writers: _Writers, table: str
) -> Iterator[FoundRows]:
    for xmin, chosen in grouped(xmins.to_numpy(zero_copy_only=False)):
        place = f"table {table}, xmin {xmin}"
        yield FoundRows(rows.take(pa.array(chosen)), writers.get(xmin, ()), place=place)


def _writers(connection: Any, asked: ReadBack) -> _Writers:
    """Return the numbers of the committables by the `xmin` of their rows."""
    numbers_by_xmin: dict[int, list[int]] = {}
    staged: dict[str, dict[str, int]] = {}
    for number, committable in enumerate(asked.committables):
        if committable.prepared:
            numbers_by_xmin.setdefault(committable.xid % 2**32, []).append(number)
        else:
            staged.setdefault(committable.place, {})[committable.handle] = number
    for place, numbers in staged.items():
        rows = connection.execute(
            f"SELECT handle, xmin::text::int8 FROM {quoted(place, LEDGER)} "
            "WHERE outcome = 'committed' AND handle = ANY (%s)",
            [list(numbers)],
        )
        for handle, xmin in rows.fetchall():
            numbers_by_xmin.setdefault(xmin, []).append(numbers[handle])
    return {xmin: tuple(numbers) for xmin, numbers in numbers_by_xmin.items()}


def _expression(name: str, column: Column | None, field: pa.Field) -> str:
    """Return SQL of a column's value, as text that `_batches` reads without loss."""
    if column is None:
        raise UserError(f"{name}: the table has no column {field.name!r} any more")
    sql, kind = quoted(column.name), column.type
    if kind.name in _PLAIN and kind.element is None:
        return sql
    if kind.name == "bytea":
        return f"encode({sql}, 'hex')"
    if kind.name == "date":
        return f"{sql} - date '1970-01-01'"
    if kind.name in ("timestamp", "timestamptz"):
        return f"(extract(epoch FROM {sql}) * 1000000)::int8"
    raise UserError(
        f"{name}: column {column.name!r} has type {kind.shown}, whose text the server may write "
        "in another form; tables with such a column cannot be compared"
    )


def _batches(connection: Any, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    types = {field.name: _read_type(field.type) for field in schema} | {_EXTRA: pa.int64()}
    with connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
        for block in _blocks(copy):
            yield from pa.csv.open_csv(
                pa.BufferReader(block),
                pa.csv.ReadOptions(
                    column_names=[*types], block_size=len(block) + 1, use_threads=False
                ),
                pa.csv.ParseOptions(newlines_in_values=True),
                pa.csv.ConvertOptions(
                    column_types=types,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    true_values=["t"],
                    false_values=["f"],
                ),
            )


def _blocks(copy: Any) -> Iterator[bytes]:
    """Yield whole rows, some MB of them together: the server sends each as a piece of its own."""
    rows = bytearray()
    for row in copy:
        rows += row
        if len(rows) >= _BLOCK_BYTES:
            yield bytes(rows)
            rows.clear()
    if rows:
        yield bytes(rows)


def _read_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary()  # hex digits
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _from_hex(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Decode hex digits; numbers become the dates and times that they stand for."""
    for number, field in enumerate(schema):
        column = batch.column(field.name)
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy() // 2
            digits = b"".join(column.drop_null().to_pylist())
            offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
            data = pa.py_buffer(bytes.fromhex(digits.decode()))
            buffers = [column.is_valid().buffers()[1], pa.py_buffer(offsets), data]
            column = pa.Array.from_buffers(pa.binary(), len(column), buffers)
        elif pa.types.is_temporal(field.type):
            column = column.cast(field.type)
        batch = batch.set_column(number, field.name, column)
    return batch

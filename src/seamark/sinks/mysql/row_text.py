"""Turns Arrow columns into SQL text, whole columns at once: no Python object is made for a row.

A value has the same text in LOAD DATA and in INSERT: numbers bare, NULL bare, everything else in
single quotes with quotes and backslashes escaped. Newlines and NUL stay unchanged inside quotes.
Only the text around a row differs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from seamark.model.errors import WriteRefusedError
from seamark.sinks.internal.columns import pieces


def load_data_text(batch: pa.RecordBatch) -> memoryview:
    """Return the rows in the format of LOAD DATA: fields separated by commas, each row ended by a
    newline, enclosed by single quotes where needed, escaped by backslashes."""
    text = _rows_of(batch, b"", b"\n", binary_prefix=b"")
    return next(pieces(text, 2**62))[0]


def values_text(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the rows as written after VALUES, in pieces of at most `limit_bytes` (but at least one
    row), each with its number of rows."""
    text = _rows_of(batch, b"(", b"),", binary_prefix=b"_binary")
    for piece, start, end in pieces(text, limit_bytes):
        yield piece[:-1], end - start


def _rows_of(
    batch: pa.RecordBatch, before: bytes, after: bytes, binary_prefix: bytes
) -> pa.LargeBinaryArray:
    fields = [
        _field(name, column, binary_prefix)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    if before:
        fields[0] = _around(before, fields[0], b"")
    fields[-1] = _around(b"", fields[-1], after)
    return pc.binary_join_element_wise(*fields, _bytes(b","))


def _field(name: str, column: pa.Array, binary_prefix: bytes) -> pa.LargeBinaryArray:
    """Return the column's values as SQL text; the result holds no null."""
    kind = column.type
    if pa.types.is_null(kind):
        return pa.array([b"NULL"] * len(column), pa.large_binary())
    if pa.types.is_boolean(kind):
        text = column.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_floating(kind):
        if pc.any(pc.is_inf(column)).as_py():
            raise WriteRefusedError(
                f"column {name!r} holds an infinite number, which MySQL has not; replace it, e.g. "
                f"with nullif({name}, double('Infinity'))"
            )
        nothing = pa.scalar(None, kind)
        text = pc.if_else(pc.is_nan(column), nothing, column).cast(pa.string())
    elif pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        text = column.cast(pa.string())
    elif pa.types.is_date(kind):
        text = _around(b"'", column.cast(pa.string()).cast(pa.large_binary()), b"'")
    elif pa.types.is_timestamp(kind):
        if kind.tz is not None:
            column = column.cast(pa.timestamp("us", "UTC"))
        plain = column.cast(pa.timestamp("us")).cast(pa.string())
        text = _around(b"'", plain.cast(pa.large_binary()), b"'")
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _around(b"'", _escaped(column), b"'")
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        text = _around(binary_prefix + b"'", _escaped(column), b"'")
    else:
        raise WriteRefusedError(f"column {name!r} has the Arrow type {kind}, which is not stored")
    return text.cast(pa.large_binary()).fill_null(b"NULL")


def _escaped(column: pa.Array) -> pa.LargeBinaryArray:
    column = column.cast(pa.large_binary())
    for character in (b"\\", b"'"):  # in this order: the second adds backslashes
        # Searching is much cheaper than replacing.
        if pc.any(pc.match_substring(column, character)).as_py():
            column = pc.replace_substring(column, character, b"\\" + character)
    return column


def _around(before: bytes, column: pa.LargeBinaryArray, after: bytes) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(_bytes(before), column, _bytes(after), _bytes(b""))


def _bytes(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.large_binary())

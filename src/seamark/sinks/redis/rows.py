"""Arrow batches to blocks of key and value bytes, a column at a time: no Python object per row.

A block is a run of rows for one operation. It has one of two forms: the arguments of a Redis
command as sent by the protocol (`MSET`), or a MessagePack array of the same arguments for a script.

| operation | arguments for each row |
|---|---|
| ``set`` | key, value |
| ``delete`` | key |
| ``hash`` | key; count of arguments; field, value, …; count of fields; fields to delete |

A count of fields of -1 deletes the whole hash.

In MessagePack the operation and the time to live in ms (empty: for ever) come first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.dead_letters import Refusals, RefusedRow
from seamark.contracts.read_back import DELETE
from seamark.contracts.record_batches import (
    constants,
    integers,
    null_where,
    nulls,
    numbers,
    text_scalar,
)
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import datetimes_as_text, pieces
from seamark.sinks.redis.committable import PREFIX
from seamark.sinks.redis.scripts import BLOCK_ARGUMENTS

BLOCK_ROWS = BLOCK_ARGUMENTS // 2
BLOCK_BYTES = 2**20
"""Redis serves nobody else while it applies a block: a few milliseconds at this size."""
LARGEST_BYTES = 512 * 2**20
"""Redis's limit for one string, and for one argument: a row goes as one, packed."""
_ENVELOPE_BYTES = 100
"""The most around a packed row, and the most for a column's name and sizes, beside its name."""

_BINARY = pa.large_binary()


@dataclass(frozen=True)
class Layout:
    """How a row is stored.

    The key is the column `key` behind `prefix`. The value is the column `value` or, if that is
    None, a hash of all columns but `key` and `op`. `op` is the column that tells rows to delete.
    """

    key: str
    value: str | None
    prefix: str
    ttl_ms: int | None
    op: str | None = None


@dataclass(frozen=True)
class Block:
    """Rows for one operation, and their arguments' buffer: for MSET if `mset`, else MessagePack."""

    operation: str
    rows: int
    arguments: int
    body: memoryview
    mset: bool
    ttl_ms: int | None

    def packed(self) -> list[Any]:
        """Return the buffers of the MessagePack array."""
        ttl = b"" if self.ttl_ms is None else b"%d" % self.ttl_ms
        head = b"\xdd" + (self.arguments + 2).to_bytes(4, "big")
        for text in (self.operation.encode(), ttl):
            head += b"\xdb" + len(text).to_bytes(4, "big") + text
        return [head, self.body]


def unfit(batch: pa.RecordBatch, layout: Layout) -> list[RefusedRow]:
    """Return the rows refused by `blocks`."""
    refused = Refusals(changes.unfit(batch, (), layout.op))
    packed = np.full(batch.num_rows, len(layout.prefix.encode()) + _ENVELOPE_BYTES)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name == layout.key:
            refused.add(nulls(column), f"the key column {name!r} is null")
        packed += len(name.encode()) + _ENVELOPE_BYTES
        if pa.types.is_temporal(column.type):  # its text is short
            continue
        column = column.cast(_BINARY)
        if name == layout.key and PREFIX.startswith(layout.prefix):
            own = pc.starts_with(column, PREFIX.removeprefix(layout.prefix))
            refused.add(
                numbers(pc.fill_null(own, False)), f"its key begins with {PREFIX!r}, Seamark's own"
            )
        lengths = _lengths(column)
        refused.add(lengths > LARGEST_BYTES, partial(_too_long, f"column {name!r}", lengths))
        packed += lengths
    refused.add(packed > LARGEST_BYTES, partial(_too_long, "the packed row", packed))
    return refused.rows()


def _too_long(what: str, lengths: Any, row: int) -> str:
    return f"{what} has {lengths[row]} bytes; Redis holds at most {LARGEST_BYTES}"


def key_names(batch: pa.RecordBatch, layout: Layout) -> list[bytes]:
    """Return the Redis key of each row; no key may be null."""
    column = datetimes_as_text(batch).column(batch.schema.names.index(layout.key)).cast(_BINARY)
    return [layout.prefix.encode() + key for key in column.to_pylist()]


def blocks(batch: pa.RecordBatch, layout: Layout, *, mset: bool) -> Iterator[Block]:
    """Yield the batch as blocks, to be applied in this order.

    mset: blocks fit for MSET get its form.

    Raises WriteRefusedError for a null key, an unknown op, and a value too long for Redis.
    """
    changes.require_fit(unfit(batch, layout), f"Redis keys {layout.prefix}*")
    deleted = None if layout.op is None else pc.equal(batch.column(layout.op), text_scalar(DELETE))
    batch = datetimes_as_text(batch)
    names = batch.schema.names
    keys = batch.column(names.index(layout.key)).cast(_BINARY)
    if layout.prefix:
        keys = _joined(_bytes(layout.prefix.encode()), keys)
    if layout.value is None:
        fields = {
            name: _unless(deleted, batch.column(i).cast(_BINARY))
            for i, name in enumerate(names)
            if name not in (layout.key, layout.op)
        }
        yield from _hashes(keys, fields, deleted, layout)
        return
    values = _unless(deleted, batch.column(names.index(layout.value)).cast(_BINARY))
    if values.null_count:
        # For a key with both a value and a null keep the last row: then block order is free.
        codes = keys.dictionary_encode()
        last = np.empty(len(codes.dictionary), np.int64)
        last[numbers(codes.indices)] = np.arange(len(keys))  # of several the last one stays
        keys, values = keys.take(integers(last)), values.take(integers(last))
        yield from _uniform("delete", [keys.filter(values.is_null())], layout, mset=False)
        keys, values = keys.filter(values.is_valid()), values.drop_null()
    yield from _uniform("set", [keys, values], layout, mset=mset and layout.ttl_ms is None)


def _uniform(
    operation: str, columns: list[pa.Array], layout: Layout, *, mset: bool
) -> Iterator[Block]:
    """Yield blocks of rows with one argument from each column."""
    rows = _joined(*(piece for c in columns for piece in (_resp(c) if mset else _msgpack(c))))
    counts = np.full(len(rows), len(columns))
    yield from _cut(operation, rows, counts, layout, mset=mset)


def _hashes(
    keys: pa.Array, fields: Mapping[str, pa.Array], deleted: pa.Array | None, layout: Layout
) -> Iterator[Block]:
    """Yield blocks that set the fields with a value and delete the others; a `deleted` row, all of
    whose fields are null, deletes the hash."""
    present = np.zeros(len(keys), dtype=np.int64)
    gone = np.zeros(len(keys), bool) if deleted is None else numbers(deleted).view(bool)
    to_set, to_delete = [], []
    for name, values in fields.items():
        field = b"\xdb" + len(name.encode()).to_bytes(4, "big") + name.encode()
        present += ~nulls(values)
        to_set.append(pc.coalesce(_joined(_bytes(field), *_msgpack(values)), _bytes(b"")))
        named = values.is_null()
        named = named if deleted is None else pc.and_not(named, deleted)
        to_delete.append(pc.if_else(named, _bytes(field), _bytes(b"")))
    absent = np.where(gone, -1, len(fields) - present)
    set_count, delete_count = (
        _msgpack(integers(count).cast(pa.string()).cast(_BINARY)) for count in (2 * present, absent)
    )
    rows = _joined(*_msgpack(keys), *set_count, *to_set, *delete_count, *to_delete)
    counts = 3 + 2 * present + np.maximum(absent, 0)
    yield from _cut("hash", rows, counts, layout, mset=False)


def _cut(
    operation: str, rows: pa.Array, counts: Any, layout: Layout, *, mset: bool
) -> Iterator[Block]:
    """Cut encoded rows, of `counts` arguments each, into blocks."""
    arguments = np.concatenate([[0], np.cumsum(counts)])
    for body, start, end in pieces(rows, BLOCK_BYTES, BLOCK_ROWS) if len(rows) else ():
        count = int(arguments[end] - arguments[start])
        yield Block(operation, end - start, count, body, mset, layout.ttl_ms)


def _unless(deleted: pa.Array | None, values: pa.Array) -> pa.Array:
    """Return the values, null where a row is deleted."""
    return values if deleted is None else null_where(deleted, values)


def _joined(*pieces: Any) -> pa.Array:
    """Concatenate scalars and arrays row by row; null where any piece is null."""
    return pc.binary_join_element_wise(*pieces, _bytes(b""))


def _resp(column: pa.Array) -> list[Any]:
    length = pc.cast(pc.cast(pc.binary_length(column), pa.string()), _BINARY)
    line = _bytes(b"\r\n")
    return [_bytes(b"$"), length, line, column, line]


def _msgpack(column: pa.Array) -> list[Any]:
    lengths = _lengths(column).astype(">u4")
    length = pa.Array.from_buffers(
        pa.binary(4), len(column), [None, pa.py_buffer(lengths.tobytes())]
    )
    return [_bytes(b"\xdb"), length.cast(_BINARY), column]


def _lengths(column: pa.Array) -> Any:
    return np.where(nulls(column), 0, numbers(pc.binary_length(column)))


def _bytes(value: bytes) -> pa.Scalar:
    return constants(value).cast(_BINARY)[0]

"""Parts of Arrow batches: what a task makes of its rows is bounded in bytes, not in rows.

`numbers`, `nulls`, `integers`, `constants` and `text_scalar` stand for `to_numpy`, `pa.array` and
`pa.scalar`, which import pandas, for half a second of each new worker's CPU. So does a Python value
given to a function of pyarrow.compute, and `to_pandas_dtype` of pyarrow before 25, which fails
without pandas.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PART_BYTES = 16 * 2**20
"""Encoders hold a few copies of a part. Smaller parts would cost small rows their speed: a batch of
Spark's 10,000 rows of 1.6 kB is still one part."""


def in_parts(batch: pa.RecordBatch, most_bytes: int = PART_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows, in their order, in parts of at most `most_bytes`, or of one row."""
    if batch.num_rows <= 1 or batch.nbytes <= most_bytes:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from in_parts(batch.slice(0, middle), most_bytes)
    yield from in_parts(batch.slice(middle), most_bytes)


def numbers(values: pa.Array) -> Any:
    """Return the numbers as an array of numpy's, with anything for null."""
    is_ = pa.types
    if is_.is_boolean(values.type):
        values = values.cast(pa.uint8())
    of = values.type
    letter = "f" if is_.is_floating(of) else "u" if is_.is_unsigned_integer(of) else "i"
    kind, count = np.dtype(f"{letter}{of.bit_width // 8}"), len(values)
    if count == 0:
        return np.empty(0, kind)
    return np.frombuffer(values.buffers()[1], kind, count, values.offset * kind.itemsize)


def nulls(values: pa.Array, *, nan_is_null: bool = False) -> Any:
    """Return which values are null."""
    return numbers(values.is_null(nan_is_null=nan_is_null)).view(bool)


def null_where(mask: pa.Array, values: pa.Array) -> pa.Array:
    """Return the values, null where the mask is true. A null *scalar* for `if_else` makes other
    texts of those of a slice in pyarrow before 24 (apache/arrow#49410)."""
    return pc.if_else(mask, pa.nulls(len(values), values.type), values)


def constants(*values: bytes) -> pa.BinaryArray:
    """Return these values."""
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def text_scalar(value: str) -> pa.StringScalar:
    """Return this text."""
    return constants(value.encode()).view(pa.string())[0]


def integers(values: Any) -> pa.Int64Array:
    """Return the numbers of an array of numpy's."""
    values = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])

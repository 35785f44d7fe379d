"""Arrow batches as rows of binary COPY, column by column: no Python object is made per row.

A field is its length (four bytes, -1 for NULL) and its value in network order. Each column becomes
an Arrow array of such fields. Joining the columns' fields row by row makes one array, and its data
buffer is the stream itself. Formats: PostgreSQL's documentation of COPY, and the `*_recv` functions
of its types; `tests/integration/postgres/test_sink_types.py` reads each type back.
"""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.sinks.postgres.types import TEXTS, ColumnType

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

_EPOCH_DAYS = 10_957  # 2000-01-01, PostgreSQL's day 0
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
_NOTHING = pa.scalar(b"")


def rows(batch: pa.RecordBatch, columns: Sequence[ColumnType]) -> memoryview:
    """Return the batch as the middle of a COPY stream (`HEADER` before, `TRAILER` after it all).

    `columns` are the target's, in the batch's order; `types.fits` has allowed each. Raises
    ValueError for a value without a form in its type (a uuid without exactly 32 hex digits).
    """
    count = pa.scalar(len(columns).to_bytes(2, "big"))
    fields = [_fields(c, t) for c, t in zip(batch.columns, columns, strict=True)]
    return memoryview(_bytes(pc.binary_join_element_wise(count, *fields, _NOTHING)))


def _fields(values: pa.Array, column: ColumnType) -> pa.BinaryArray:
    """Return length and value of each element, as one binary string, never null."""
    if column.element is not None:
        return _variable(_arrays(values, column.element))
    if column.name in _NUMBERS:
        number_type, convert = _NUMBERS[column.name]
        numbers = convert(values).fill_null(0).to_numpy(zero_copy_only=False)
        return _fixed(numbers.astype(number_type).view(np.uint8).reshape(len(values), -1), values)
    if column.name == "numeric":
        return _fixed(_numerics(values), values)
    if column.name == "uuid":
        return _fixed(_uuids(values), values)
    values = _binary(values)
    if column.name == "bpchar" or (column.name == "varchar" and column.modifier >= 0):
        _require_ends(values, column)
    if column.name == "jsonb":  # its version, then the text
        values = pc.binary_join_element_wise(pa.scalar(b"\1"), values, _NOTHING)
    else:
        assert column.name in TEXTS or column.name == "bytea", column
    return _variable(values)


def _fixed(matrix: Any, values: pa.Array) -> pa.BinaryArray:
    """Return fields of one width from a row of bytes per element; NULL where `values` is null."""
    count, width = matrix.shape
    whole = np.empty((count, 4 + width), np.uint8)
    whole[:, :4] = np.frombuffer(width.to_bytes(4, "big"), np.uint8)
    whole[:, 4:] = matrix
    if values.null_count == 0:
        return _from(whole, np.full(count, 4 + width))
    null = values.is_null().to_numpy(zero_copy_only=False)
    whole[null, :4] = 255
    kept = np.ones(whole.shape, bool)
    kept[null, 4:] = False
    return _from(whole[kept], np.where(null, 4, 4 + width))


def _variable(values: pa.Array) -> pa.BinaryArray:
    """Return fields of binary values of any lengths; a null becomes NULL."""
    lengths = pc.fill_null(pc.binary_length(values), -1).to_numpy(zero_copy_only=False)
    prefix = _from(lengths.astype(">i4"), np.full(len(values), 4))
    return pc.binary_join_element_wise(prefix, pc.fill_null(values, _NOTHING), _NOTHING)


def _arrays(values: pa.Array, element: ColumnType) -> pa.Array:
    """Return one-dimensional arrays: number of dimensions, whether there are nulls, and the
    element's type; unless empty, length and lower bound; the elements."""
    count = len(values)
    lengths = pc.fill_null(values.value_lengths(), 0).to_numpy(zero_copy_only=False)
    elements = values.flatten()
    head = np.zeros((count, 3), ">i4")
    head[:, 0] = lengths > 0
    head[:, 1] = elements.null_count > 0
    head[:, 2] = element.oid
    bounds = np.empty((count, 2), ">i4")
    bounds[:, 0] = lengths
    bounds[:, 1] = 1
    lists = pa.ListArray.from_arrays(
        pa.array(_offsets(lengths), pa.int32()), _fields(elements, element)
    )
    whole = pc.binary_join_element_wise(
        _from(head, np.full(count, 12)),
        _from(bounds[lengths > 0], np.where(lengths > 0, 8, 0)),
        pc.binary_join(lists, _NOTHING),
        _NOTHING,
    )
    return pc.if_else(values.is_null(), pa.scalar(None, pa.binary()), whole)


def _numerics(values: pa.Array) -> Any:
    """Return digits in base 10,000, as many for every row: the server drops leading zeros."""
    if not pa.types.is_decimal(values.type):
        values = values.cast(pa.decimal128(19, 0))
    precision, scale = values.type.precision, values.type.scale
    pad = -scale % 4
    whole, fraction = -(-(precision - scale) // 4), (scale + pad) // 4
    values = pc.fill_null(values, pa.scalar(Decimal(0), values.type))
    words = np.frombuffer(values.buffers()[1], "<i8")
    words = words[2 * values.offset : 2 * (values.offset + len(values))].reshape(-1, 2)
    if precision + pad <= 18:
        number = words[:, 0]
    else:  # Python's integers, in numpy's loops
        number = words[:, 1].astype(object) * 2**64 + words[:, 0].view("<u8").astype(object)
    fields = np.zeros((len(values), 4 + whole + fraction), ">i2")
    fields[:, 0] = whole + fraction
    fields[:, 1] = whole - 1
    fields[:, 2] = np.where(number < 0, 0x4000, 0)
    fields[:, 3] = scale
    number = abs(number) * 10**pad
    for position in range(3 + whole + fraction, 3, -1):
        fields[:, position] = number % 10_000
        number = number // 10_000
    return fields.view(np.uint8).reshape(len(values), -1)


_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]


def _uuids(values: pa.Array) -> Any:
    texts = pc.fill_null(_binary(pc.replace_substring(values, "-", "")), pa.scalar(b"0" * 32))
    nibbles = np.frombuffer(_bytes(texts), np.uint8)
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    if (lengths != 32).any() or (_NIBBLES[nibbles] > 15).any():
        raise ValueError("a string is no uuid: give 32 hexadecimal digits, with or without '-'")
    nibbles = _NIBBLES[nibbles].reshape(-1, 2)
    return (nibbles[:, 0] << 4 | nibbles[:, 1]).reshape(-1, 16)


def _require_ends(values: pa.Array, column: ColumnType) -> None:
    """Raise ValueError for spaces at a text's end that the server cuts off, or takes for its own:
    those of a text too long for a varchar, and any of a char."""
    bad = pc.ends_with(values, " ")
    if column.name == "varchar":
        length = pc.utf8_length(values.view(pa.string()))
        bad = pc.and_(bad, pc.greater(length, column.modifier - 4))
    if pc.any(bad).as_py():
        raise ValueError(f"a text ends in spaces that {column.shown} does not keep")


def _since_2000(numbers: pa.Array, start: int) -> pa.Array:
    least = -(2 ** (numbers.type.bit_width - 1))  # PostgreSQL's -infinity
    numbers = pc.subtract_checked(numbers, pa.scalar(start, numbers.type))
    if pc.any(pc.equal(numbers, pa.scalar(least, numbers.type))).as_py():
        raise ValueError("a date or timestamp is out of range")
    return numbers


def _microseconds(values: pa.Array) -> pa.Array:
    values = values.cast(pa.timestamp("us", values.type.tz))
    return _since_2000(values.cast(pa.int64()), _EPOCH_US)


_NUMBERS: dict[str, tuple[str, Callable[[pa.Array], pa.Array]]] = {
    "bool": (">u1", lambda values: values.cast(pa.uint8())),
    "int2": (">i2", lambda values: values.cast(pa.int16())),
    "int4": (">i4", lambda values: values.cast(pa.int32())),
    "int8": (">i8", lambda values: values.cast(pa.int64())),
    "float4": (">f4", lambda values: values.cast(pa.float32())),
    "float8": (">f8", lambda values: values.cast(pa.float64())),
    "date": (">i4", lambda values: _since_2000(values.cast(pa.int32()), _EPOCH_DAYS)),
    "timestamp": (">i8", _microseconds),
    "timestamptz": (">i8", _microseconds),
}


def _binary(values: pa.Array) -> pa.Array:
    """Return text or bytes, in any of Arrow's layouts, as Arrow's binary."""
    if pa.types.is_large_string(values.type):
        values = values.cast(pa.large_binary())
    return values.cast(pa.binary())


def _from(data: Any, lengths: Any) -> pa.BinaryArray:
    """Return a binary array of numpy's bytes, cut into pieces of these lengths."""
    buffers = [None, pa.py_buffer(_offsets(lengths)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _offsets(lengths: Any) -> Any:
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)


def _bytes(values: pa.BinaryArray) -> pa.Buffer:
    """Return the concatenation of all values."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    start, end = int(offsets[values.offset]), int(offsets[values.offset + len(values)])
    data = values.buffers()[2]
    return data.slice(start, end - start) if data is not None else pa.py_buffer(b"")

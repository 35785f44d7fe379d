"""Arrow batches as rows of binary COPY, column by column: no Python object is made per row.

A field is its length (four bytes, -1 for NULL) and its value in network order. Each column becomes
an Arrow array of such fields. Joining the columns' fields row by row makes one array, and its data
buffer is the stream itself. Formats: PostgreSQL's documentation of COPY, and the `*_recv` functions
of its types; `tests/integration/postgres/test_sink_types.py` reads each type back.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.record_batches import constants, null_where, nulls, numbers
from seamark.sinks.postgres.types import TEXTS, ColumnType

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

_EPOCH_DAYS = 10_957  # 2000-01-01, PostgreSQL's day 0
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
_NOTHING = constants(b"")[0]
_NIBBLES = np.full(256, 255, np.uint8)


def rows(batch: pa.RecordBatch, columns: Sequence[ColumnType]) -> memoryview:
    """Return the batch as the middle of a COPY stream (`HEADER` before, `TRAILER` after it all).

    `columns` are the target's, in the batch's order; `types.fits` has allowed each. Raises
    ValueError for a value without a form in its type (a uuid without exactly 32 hex digits).
    """
    count = constants(len(columns).to_bytes(2, "big"))[0]
    fields = [_fields(c, t) for c, t in zip(batch.columns, columns, strict=True)]
    return memoryview(_bytes(pc.binary_join_element_wise(count, *fields, _NOTHING)))


def _fields(values: pa.Array, column: ColumnType) -> pa.BinaryArray:
    """Return length and value of each element, as one binary string, never null."""
    if column.element is not None:
        return _variable(_arrays(values, column.element))
    if column.name in _NUMBERS:
        number_type, convert = _NUMBERS[column.name]
        return _fixed(_bytes_of(convert(values).astype(number_type)), values)
    if column.name == "numeric":
        return _fixed(_numerics(values), values)
    if column.name == "uuid":
        return _fixed(_uuids(values), values)
    values = _binary(values)
    if column.name == "name" and (numbers(pc.binary_length(values)) > 63)[~nulls(values)].any():
        raise ValueError("a text has more than the 63 bytes of type name")
    if column.name == "xml" and _declares_another(values):
        raise ValueError(
            "an xml text declares another encoding than UTF-8, and the server would read its "
            "letters by that: take the declaration out"
        )
    if column.name == "bpchar" or (column.name == "varchar" and column.modifier >= 0):
        _require_ends(values, column)
    if column.name == "jsonb":  # its version, then the text
        values = pc.binary_join_element_wise(constants(b"\1")[0], values, _NOTHING)
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
    null = nulls(values)
    whole[null, :4] = 255
    kept = np.ones(whole.shape, bool)
    kept[null, 4:] = False
    return _from(whole[kept], np.where(null, 4, 4 + width))


def _variable(values: pa.Array) -> pa.BinaryArray:
    """Return fields of binary values of any lengths; a null becomes NULL."""
    lengths = np.where(nulls(values), -1, numbers(pc.binary_length(values)))
    prefix = _from(lengths.astype(">i4"), np.full(len(values), 4))
    return pc.binary_join_element_wise(prefix, pc.fill_null(values, _NOTHING), _NOTHING)


def _arrays(values: pa.Array, element: ColumnType) -> pa.Array:
    """Return one-dimensional arrays: number of dimensions, whether there are nulls, and the
    element's type; unless empty, length and lower bound; the elements."""
    count = len(values)
    lengths = numbers(values.value_lengths()) * ~nulls(values)
    elements = values.flatten()
    head = np.zeros((count, 3), ">i4")
    head[:, 0] = lengths > 0
    head[:, 1] = elements.null_count > 0
    head[:, 2] = element.oid
    bounds = np.empty((count, 2), ">i4")
    bounds[:, 0] = lengths
    bounds[:, 1] = 1
    offsets = [None, pa.py_buffer(_offsets(lengths))]
    lists = pa.ListArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), count + 1, offsets), _fields(elements, element)
    )
    whole = pc.binary_join_element_wise(
        _from(head, np.full(count, 12)),
        _from(bounds[lengths > 0], np.where(lengths > 0, 8, 0)),
        pc.binary_join(lists, _NOTHING),
        _NOTHING,
    )
    return null_where(values.is_null(), whole)


def _numerics(values: pa.Array) -> Any:
    """Return digits in base 10,000, as many for every row: the server drops leading zeros."""
    if not pa.types.is_decimal(values.type):
        values = values.cast(pa.decimal128(19, 0))
    precision, scale = values.type.precision, values.type.scale
    pad = -scale % 4
    whole, fraction = -(-(precision - scale) // 4), (scale + pad) // 4
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
    return _bytes_of(fields)


_NIBBLES[np.frombuffer(b"0123456789abcdefABCDEF", np.uint8)] = [*range(16), *range(10, 16)]


def _uuids(values: pa.Array) -> Any:
    texts = pc.fill_null(_binary(pc.replace_substring(values, "-", "")), constants(b"0" * 32)[0])
    nibbles = np.frombuffer(_bytes(texts), np.uint8)
    if (numbers(pc.binary_length(texts)) != 32).any() or (_NIBBLES[nibbles] > 15).any():
        raise ValueError("a string is no uuid: give 32 hexadecimal digits, with or without '-'")
    nibbles = _NIBBLES[nibbles].reshape(-1, 2)
    return (nibbles[:, 0] << 4 | nibbles[:, 1]).reshape(-1, 16)


def _require_ends(values: pa.Array, column: ColumnType) -> None:
    """Raise ValueError for spaces at a text's end that the server cuts off, or takes for its own:
    those of a text too long for a varchar, and any of a char."""
    bad = numbers(pc.ends_with(values, " ")).view(bool) & ~nulls(values)
    if column.name == "varchar":
        bad &= numbers(pc.utf8_length(values.view(pa.string()))) > column.modifier - 4
    if bad.any():
        raise ValueError(f"a text ends in spaces that {column.shown} does not keep")


def _declares_another(texts: pa.Array) -> bool:
    declared = pc.match_substring_regex(texts, r"^<\?xml[^>]*\sencoding\b")
    utf8 = pc.match_substring_regex(texts, r"(?i)^<\?xml[^>]*\sencoding\s*=\s*.utf-?8\W")
    return bool(pc.any(pc.and_not(declared, utf8)).as_py())


def _since_2000(values: pa.Array, start: int) -> Any:
    times = numbers(values)
    least = np.iinfo(times.dtype).min + start  # PostgreSQL's -infinity
    if ((times <= least) & ~nulls(values)).any():
        raise ValueError("a date or timestamp is out of range")
    return times - times.dtype.type(start)


def _microseconds(values: pa.Array) -> Any:
    values = values.cast(pa.timestamp("us", values.type.tz))
    return _since_2000(values.cast(pa.int64()), _EPOCH_US)


_NUMBERS: dict[str, tuple[str, Callable[[pa.Array], Any]]] = {
    "bool": (">u1", numbers),
    "int2": (">i2", numbers),
    "int4": (">i4", numbers),
    "int8": (">i8", numbers),
    "float4": (">f4", numbers),
    "float8": (">f8", numbers),
    "date": (">i4", lambda values: _since_2000(values.cast(pa.int32()), _EPOCH_DAYS)),
    "timestamp": (">i8", _microseconds),
    "timestamptz": (">i8", _microseconds),
}


def _bytes_of(rows: Any) -> Any:
    """Return each row's bytes, of an array of numpy's."""
    width = rows.itemsize * (rows.shape[1] if rows.ndim > 1 else 1)
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), width)


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

"""Protobuf values made of columns: their schema, in proto3, and their bytes.

Fields are numbered as the columns stand. Each is `optional`, so that null and 0 stay two values;
arrays and maps have no null in Protobuf, so a row with one is refused. What Protobuf has no type
for is text: decimals, dates, and timestamps without a zone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.record_batches import null_where
from seamark.model.schema import Column
from seamark.sinks.kafka.column_types import NAME, Fields, part_of, record_name
from seamark.sinks.kafka.value_arrays import (
    BYTES,
    Encoding,
    in_lists,
    is_bytes,
    is_repeated,
    iso,
    joined,
)

_KEYS = ("string", "boolean", "tinyint", "smallint", "int", "bigint")
_TYPES = {
    "boolean": "bool", "tinyint": "int32", "smallint": "int32", "int": "int32", "bigint": "int64",
    "float": "float", "double": "double", "string": "string", "binary": "bytes", "date": "string",
    "timestamp": "google.protobuf.Timestamp", "timestamp_ntz": "string",
}  # fmt: skip
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_NO_NULL = "is null or has a null in it, which an array or map of Protobuf cannot: coalesce it"
_SECOND_US = 1_000_000
_OPTIONAL = "optional "
_OWN = "\0"
"""Stands for the name of a message until the message around it gives one."""


class _Format:
    """Parts are (label, type, body of its message)."""

    called, names = "Protobuf", NAME
    scalars = {name: (_OPTIONAL, type_, "") for name, type_ in _TYPES.items()}

    def decimal(self, precision: int, scale: int) -> Any:
        return self.scalars["string"]

    def array(self, of: Any) -> Any:
        return ("repeated ", *of[1:]) if of[0] == _OPTIONAL else None

    def map(self, key: str, of: Any) -> Any:
        key = key.partition(" collate ")[0]
        if key not in _KEYS or of[0] != _OPTIONAL:
            return None
        return "", f"map<{_TYPES[key]}, {of[1]}>", of[2]

    def struct(self, fields: Fields, path: Sequence[str]) -> Any:
        names, lines = {name for name, _ in fields}, []
        for number, (name, (label, type_, body)) in enumerate(fields, 1):
            if body:
                own = f"{name}_message"
                while own in names:
                    own += "_"
                names.add(own)
                lines.append(f"message {own} {{ {body} }}")
                type_ = type_.replace(_OWN, own)
            lines.append(f"{label}{type_} {name} = {number};")
        return _OPTIONAL, _OWN, " ".join(lines)


def schema_of(columns: Sequence[Column], topic: str | None, sink: str) -> str:
    """Return the text of the schema; raises ConfigurationError."""
    body = part_of(columns, _Format(), topic, sink)[2]
    lines = ['syntax = "proto3";', 'import "google/protobuf/timestamp.proto";']
    if "google.protobuf.Timestamp " not in body and "google.protobuf.Timestamp>" not in body:
        lines.pop()
    return "\n".join([*lines, f"message {record_name(topic)} {{ {body} }}", ""])


class ProtobufEncoding(Encoding):
    """See `Encoding`."""

    def present(self, values: pa.Array, rows: Any, path: str) -> pa.Array:
        """See `Encoding`: without a tag, and without the length that some have in front."""
        kind = values.type
        if pa.types.is_struct(kind):
            parts = []
            for number, column in enumerate(values.flatten(), 1):
                name = kind.field(number - 1).name
                parts.append(self._field(number, column, rows, f"{path}.{name}" if path else name))
            return joined(*parts)
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
            return _varints(values.cast(pa.int64()).to_numpy().astype(np.uint64))
        if pa.types.is_floating(kind):
            buffers = [None, pa.py_buffer(values.to_numpy().tobytes())]
            fixed = pa.binary(kind.bit_width // 8)
            return pa.Array.from_buffers(fixed, len(values), buffers).cast(BYTES)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            seconds, micros = np.divmod(values.cast(pa.int64()).to_numpy(), _SECOND_US)
            return joined(_unless_zero(1, seconds), _unless_zero(2, micros * 1000))
        if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
            return iso(values).cast(BYTES)
        return values.cast(BYTES) if is_bytes(kind) else self.text(values, rows, path)

    def _field(self, number: int, values: pa.Array, rows: Any, path: str) -> pa.Array:
        """Return a field with its tag, nothing for null."""
        kind = values.type
        if not is_repeated(kind):
            return _tagged(number, self.encode(values, rows, path), _wire_of(kind))
        lengths, parts, inner = self._without_null(values, rows, path)
        if len(parts) == 2:
            keys = self._field(1, parts[0], inner, path)
            entries = joined(keys, self._field(2, parts[1], inner, path))
            return in_lists(_tagged(number, entries, _LENGTH), lengths)
        made, wire = self.present(parts[0], inner, path), _wire_of(kind.value_type)
        if wire == _LENGTH:
            return in_lists(_tagged(number, made, wire), lengths)
        packed = _tagged(number, in_lists(made, lengths), _LENGTH)
        return pc.if_else(pa.array(lengths == 0), pa.scalar(b"", BYTES), packed)

    def _without_null(self, values: pa.Array, rows: Any, path: str) -> Any:
        """Refuse the rows with a null list or element, and return the others' as `lists` does; the
        refused ones' are empty."""
        bad = values.is_null().to_numpy(zero_copy_only=False)
        for _ in range(2):
            if bad.any():
                values = pc.if_else(pa.array(~bad), values, pa.scalar([], values.type))
            lengths, parts, inner = self.lists(values, np.arange(len(values)))
            bad[inner[parts[-1].is_null().to_numpy(zero_copy_only=False)]] = True
        self.refuse(bad, rows, path, _NO_NULL)
        return lengths, parts, rows[inner]


def _wire_of(kind: pa.DataType) -> int:
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _VARINT
    if pa.types.is_floating(kind):
        return _FIXED64 if kind.bit_width == 64 else _FIXED32
    return _LENGTH


def _tagged(number: int, made: pa.Array, wire: int) -> pa.Array:
    tag = _varints(np.array([number << 3 | wire], np.uint64))[0].as_py()
    if wire != _LENGTH:
        return joined(tag, made).fill_null(b"")
    lengths = pc.binary_length(made).fill_null(0).to_numpy().astype(np.uint64)
    return joined(tag, _varints(lengths), made).fill_null(b"")


def _unless_zero(number: int, numbers: Any) -> pa.Array:
    made = _varints(numbers.astype(np.int64).astype(np.uint64))
    return _tagged(number, null_where(pa.array(numbers == 0), made), _VARINT)


def _varints(numbers: Any) -> pa.Array:
    sizes = np.ones(len(numbers), np.int64)
    for size in range(1, 10):
        sizes += numbers >= np.uint64(1 << 7 * size)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    data = np.empty(offsets[-1], np.uint8)
    for at in range(int(sizes.max(initial=0))):
        has = np.flatnonzero(sizes > at)
        byte = (numbers[has] >> np.uint64(7 * at) & np.uint64(0x7F)).astype(np.uint8)
        data[offsets[has] + at] = byte | (sizes[has] > at + 1).astype(np.uint8) << 7
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(BYTES, len(numbers), buffers)

"""Protobuf values from a schema registry: fields are found by number, as Protobuf does, and have
the names and types of the reader's schema.

Google's own library reads. It takes a number of another type than the reader's for a field that it
does not know, or for another number: `_conflict` refuses such a pair of schemas.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from seamark.model.packages import load_driver
from seamark.model.protobuf_schema import message_of
from seamark.model.schema_registry import SchemaText, no_column, no_schema

_UINT64 = pa.decimal128(20, 0)
_SCALARS = {
    1: ("double", pa.float64()), 2: ("float", pa.float32()), 3: ("int64", pa.int64()),
    4: ("uint64", _UINT64), 5: ("int32", pa.int32()), 6: ("fixed64", _UINT64),
    7: ("fixed32", pa.int64()), 8: ("bool", pa.bool_()), 9: ("string", pa.string()),
    12: ("bytes", pa.binary()), 13: ("uint32", pa.int64()), 14: ("enum", pa.string()),
    15: ("sfixed32", pa.int32()), 16: ("sfixed64", pa.int64()), 17: ("sint32", pa.int32()),
    18: ("sint64", pa.int64()),
}  # fmt: skip
"""By the number of a type in Protobuf's descriptors; 10 and 11 are messages."""
_MESSAGES = (10, 11)
_TIMES = {
    "google.protobuf.Timestamp": pa.timestamp("us", "UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}
_WIDER = {
    ("int32", "int64"), ("uint32", "uint64"), ("uint32", "int64"), ("sint32", "sint64"),
    ("enum", "int32"), ("enum", "int64"), ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
"""Types of a writer's field that the reader's holds, in the same bytes."""
_Get = Callable[[Any], Any]


class ProtobufValues:
    """The values of one reader's schema: of its first message. `type` is their Arrow type.

    `name` begins each error. Raises ConfigurationError for what Spark has no type for, and for text
    that is no Protobuf schema.
    """

    def __init__(self, reader: SchemaText, name: str) -> None:
        self._name, self._text = name, reader
        try:
            self._message = message_of(reader)
        except ValueError as error:
            raise no_schema(name, "Protobuf schema", error, reader) from None
        factory = load_driver("google.protobuf.message_factory", "Protobuf values", "protobuf")
        self._parse = factory.GetMessageClass(self._message).FromString
        self.type, self._get = self._struct(self._message, "", ())

    def reading(self, writer: SchemaText) -> Callable[[Sequence[bytes]], list[Any]]:
        """Return the function that reads records of this writer's schema, without their heads, but
        with the path to their message. It raises whatever an unreadable record among them leads to.
        Raises ValueError if no record of the writer's could be read."""
        message = self._message if writer == self._text else message_of(writer)
        parse, get, own = self._parse, self._get, self._message.full_name
        order = list(message.file.message_types_by_name.values())
        for one in order:
            if one.full_name == own and (misfit := _conflict(one, self._message, "")):
                raise ValueError(misfit)

        def body(record: bytes) -> bytes:
            at, path = _path(record)
            named = order[path[0]]
            for step in path[1:]:
                named = named.nested_types[step]
            if named.full_name != own:
                raise ValueError(
                    f"the record is a {named.full_name}, and the first message of the reader's "
                    f"schema is {own}"
                )
            return record[at:]

        first = order[0].full_name == own
        return lambda records: [
            get(parse(record[1:] if first and record[:1] == b"\0" else body(record)))
            for record in records
        ]

    def _struct(self, message: Any, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, _Get]:
        """Return a message's Arrow type, and what makes a value of one that is there."""
        if of := _TIMES.get(message.full_name):
            return of, _time
        if message.full_name in within:
            raise no_column(self._name, path, f"has {message.full_name} within itself")
        if not message.fields:
            why = f"is a {message.full_name}, which has no fields: Spark has no type for it"
            raise no_column(self._name, path, why)
        fields, getters = [], []
        for field in message.fields:
            below = f"{path}.{field.name}" if path else field.name
            of, get = self._field(field, below, (*within, message.full_name))
            fields.append(pa.field(field.name, of))
            getters.append((field.name, get))
        return pa.struct(fields), lambda sent: {name: get(sent) for name, get in getters}

    def _field(self, field: Any, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, _Get]:
        """Return a field's Arrow type, and what takes its value out of its message."""
        name = field.name
        if field.is_repeated and _is_map(field):
            parts = field.message_type.fields_by_name
            keys, key = self._one(parts["key"], path, within)
            items, item = self._one(parts["value"], f"{path}{{}}", within)
            # Sorted: its library has no order of its own, and a repeated epoch must be equal.
            return pa.map_(keys, items), lambda message: [
                (key(one), item(value)) for one, value in sorted(getattr(message, name).items())
            ]
        of, get = self._one(field, f"{path}[]" if field.is_repeated else path, within)
        if field.is_repeated:
            return pa.list_(of), lambda message: [get(one) for one in getattr(message, name)]
        if field.has_presence and not field.has_default_value:
            return (
                of,
                lambda message: get(getattr(message, name)) if message.HasField(name) else None,
            )
        return of, lambda message: get(getattr(message, name))

    def _one(self, field: Any, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, _Get]:
        if field.type in _MESSAGES:
            return self._struct(field.message_type, path, within)
        kind, of = _SCALARS[field.type]
        if kind != "enum":
            return of, lambda value: value
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}

        def symbol(number: int) -> Any:
            if number not in names:
                raise ValueError(f"{path}: the enum of the reader's schema has no {number}")
            return names[number]

        return of, symbol


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _time(message: Any) -> int:
    """Return microseconds, of which Spark's types are."""
    if message.nanos % 1000 or abs(message.nanos) >= 10**9:
        raise ValueError(
            f"{message.nanos} ns stand in a {message.DESCRIPTOR.name}, and Spark's type has "
            "microseconds; value_schema= with a message {int64 seconds = 1; int32 nanos = 2;} of "
            "your own has them as numbers"
        )
    return int(message.seconds * 10**6 + message.nanos // 1000)


def _path(record: bytes) -> tuple[int, list[int]]:
    """Return where the message begins, and the indexes of its type in its file."""
    numbers: list[int] = []
    at = 0
    while not numbers or len(numbers) <= numbers[0]:
        number = shift = 0
        while True:
            byte = record[at]
            at, number, shift = at + 1, number | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        numbers.append((number >> 1) ^ -(number & 1))
    if min(numbers) < 0:
        raise ValueError("the indexes of the message's type are not Confluent's")
    return at, numbers[1:] or [0]


def _conflict(writer: Any, reader: Any, path: str) -> str:
    """Return why the reader's message would have other values than the writer's: a number read as
    another type, a field or a symbol taken for another; "" if it would not."""
    for field in reader.fields:
        below = f"the field {path}{field.name!r}"
        named = writer.fields_by_name.get(field.name)
        if named is not None and named.number != field.number:
            return f"{below} is number {named.number} of its writer's, and {field.number} here"
        given = writer.fields_by_number.get(field.number)
        if given is None:
            continue
        one, other = _kind(given), _kind(field)
        if one != other and (one, other) not in _WIDER:
            return f"{below} is a {one} of its writer's, and a {other} of the reader's schema"
        if given.enum_type is not None and field.enum_type is not None:
            for name, value in given.enum_type.values_by_name.items():
                known = field.enum_type.values_by_name.get(name)
                if known is not None and known.number != value.number:
                    return f"{below} has {name} as {value.number} of its writer's, not as here"
                if field.enum_type.is_closed and known is None:  # it would be dropped
                    return f"{below} may be {name} of its writer's, which is not here"
        elif field.message_type is not None:
            within = f"{path}{field.name}."
            if misfit := _conflict(given.message_type, field.message_type, within):
                return misfit
    return ""


def _kind(field: Any) -> str:
    if field.is_repeated and _is_map(field):
        return "map"
    kind = "message" if field.type in _MESSAGES else _SCALARS[field.type][0]
    return f"repeated {kind}" if field.is_repeated else kind

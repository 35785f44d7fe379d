"""Protobuf values: what is read of a record is what was written, or nothing.

How: Google's library writes each record by its writer's schema, compiled as the reader's is;
`ProtobufValues` reads it, and Arrow takes it as a column of its type.
"""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory, type_pb2

from seamark.model.errors import ConfigurationError, OperationFailedError
from seamark.model.protobuf_schema import message_of
from seamark.model.schema_registry import SchemaText
from seamark.sources.protobuf import ProtobufValues

_HEAD = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
"""


def text(fields: str, *references: tuple[str, str]) -> SchemaText:
    return SchemaText(f"{_HEAD}message Order {{ {fields} }}", references)


def written(schema: SchemaText, value: Any) -> bytes:
    """Return a record of the value in Protobuf's own JSON, behind the index of the message."""
    message = message_factory.GetMessageClass(message_of(schema))()
    json_format.ParseDict(value, message)
    return b"\0" + bytes(message.SerializeToString())


def read(writer: SchemaText, reader: SchemaText, record: bytes) -> Any:
    values = ProtobufValues(reader, "orders")
    rows = values.reading(writer)([record, record])
    one, two = pa.array(rows, values.type).to_pylist()
    assert repr(one) == repr(two)
    return one


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("double x = 1;", "NaN", math.nan), ("double x = 1;", -0.0, -0.0),
        ("double x = 1;", 5e-324, 5e-324), ("float x = 1;", "-Infinity", -math.inf),
        ("float x = 1;", 0.1, 0.10000000149011612),
        ("int32 x = 1;", -(2**31), -(2**31)), ("sint32 x = 1;", 2**31 - 1, 2**31 - 1),
        ("sfixed32 x = 1;", -1, -1), ("uint32 x = 1;", 2**32 - 1, 2**32 - 1),
        ("fixed32 x = 1;", 2**32 - 1, 2**32 - 1), ("int64 x = 1;", -(2**63), -(2**63)),
        ("sint64 x = 1;", 2**63 - 1, 2**63 - 1), ("sfixed64 x = 1;", -1, -1),
        ("uint64 x = 1;", 2**64 - 1, Decimal(2**64 - 1)),
        ("fixed64 x = 1;", 2**63, Decimal(2**63)),
        ("bool x = 1;", True, True), ("string x = 1;", "a\0'\"\\ 日本 🙂", "a\0'\"\\ 日本 🙂"),
        ("string x = 1;", "é" * 5_000_000, "é" * 5_000_000),
        ("bytes x = 1;", base64.b64encode(b"\0\xff").decode(), b"\0\xff"),
        ("enum E { A = 0; B = -2; } E x = 1;", "B", "B"),
        ("message M { int32 i = 1; } M x = 1;", {}, {"i": 0}),
        ("repeated int32 x = 1;", [1, 0], [1, 0]), ("repeated string x = 1;", [], []),
        ("repeated int32 x = 1 [packed = false];", [1, 0], [1, 0]),
        ("message M { optional int32 i = 1; } repeated M x = 1;", [{}, {"i": 0}],
         [{"i": None}, {"i": 0}]),
        ("map<string, int64> x = 1;", {"b": 1, "": 2, "a": 3}, [("", 2), ("a", 3), ("b", 1)]),
        ("map<uint64, bool> x = 1;", {str(2**64 - 1): True, "3": False},
         [(Decimal(3), False), (Decimal(2**64 - 1), True)]),
        ("map<bool, bytes> x = 1;", {}, []),
        ("message M { map<int32, string> m = 1; } map<string, M> x = 1;", {"k": {"m": {"1": "v"}}},
         [("k", {"m": [(1, "v")]})]),
        ("google.protobuf.StringValue x = 1;", "", {"value": ""}),
    ],
)  # fmt: skip
def test_a_value_is_read_as_it_was_written(field: str, value: Any, expected: Any) -> None:
    one, more = text(field), text(f"{field} optional int32 y = 2;")
    record = written(one, {"x": value})
    assert repr(read(one, one, record)) == repr({"x": expected})
    assert repr(read(one, more, record)) == repr({"x": expected, "y": None})


def test_null_is_not_the_default() -> None:
    schema = text(
        "optional int32 a = 1; int32 b = 2; oneof o { string c = 3; int32 d = 4; }"
        " google.protobuf.Timestamp e = 5; repeated int32 f = 6;"
    )
    assert read(schema, schema, written(schema, {})) == {
        "a": None, "b": 0, "c": None, "d": None, "e": None, "f": [],
    }  # fmt: skip
    assert read(schema, schema, written(schema, {"a": 0, "d": 0}))["a"] == 0
    old = SchemaText(
        "message Order { optional int32 a = 1 [default = 7]; required string b = 2;"
        " optional group G = 3 { optional int32 i = 1; } }"
    )
    assert read(old, old, written(old, {"b": "x"})) == {"a": 7, "b": "x", "g": None}


@pytest.mark.parametrize(
    ("kind", "seconds", "nanos", "expected"),
    [
        ("Timestamp", -5, 1000, -4_999_999), ("Timestamp", -62_135_596_801, 0, None),
        ("Timestamp", 253_402_300_800, 999_999_000, None),
        ("Timestamp", -(2**63) // 10**6 + 1, 0, None),
        ("Duration", -1, -500_000_000, -1_500_000), ("Duration", 315_576_000_000, 0, None),
    ],
)  # fmt: skip
def test_times(kind: str, seconds: int, nanos: int, expected: int | None) -> None:
    """Also those that Python cannot hold."""
    own = text("message T { int64 seconds = 1; int32 nanos = 2; } T x = 1;")
    record = written(own, {"x": {"seconds": seconds, "nanos": nanos}})
    schema = text(f"google.protobuf.{kind} x = 1;")
    values = ProtobufValues(schema, "orders")
    found = pa.array(values.reading(schema)([record]), values.type).field("x")
    micros = seconds * 10**6 + nanos // 1000
    assert found.cast(pa.int64()).to_pylist() == [micros] and expected in (None, micros)


@pytest.mark.parametrize(
    ("seconds", "nanos", "says"),
    [(0, 1, "1 ns stand in a Timestamp"), (0, 10**9, "ns stand"), (2**62, 0, "out|large|int")],
)
def test_a_time_that_would_be_altered(seconds: int, nanos: int, says: str) -> None:
    own = text("message T { int64 seconds = 1; int32 nanos = 2; } T x = 1;")
    record = written(own, {"x": {"seconds": seconds, "nanos": nanos}})
    schema = text("google.protobuf.Timestamp x = 1;")
    with pytest.raises((ValueError, OverflowError), match=says):
        read(schema, schema, record)
    assert read(own, own, record)["x"] == {"seconds": seconds, "nanos": nanos}  # the remedy


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int32 x = 1; string gone = 2;", "int64 x = 1; string s = 3;", {"x": -5, "gone": "g"},
         {"x": -5, "s": ""}),
        ("uint32 x = 1;", "int64 x = 1;", {"x": 2**32 - 1}, {"x": 2**32 - 1}),
        ("sint32 x = 1;", "sint64 x = 1;", {"x": -7}, {"x": -7}),
        ("string old = 1;", "optional string new = 1;", {"old": "v"}, {"new": "v"}),
        ("bytes x = 1;", "string x = 1;", {"x": "aGk="}, {"x": "hi"}),
        ("enum E { A = 0; B = 1; C = 2; } E x = 1;", "enum E { A = 0; B = 1; } E x = 1;",
         {"x": "B"}, {"x": "B"}),
        ("message M { int32 i = 1; M next = 2; } M x = 1;", "message M { int64 i = 1; } M x = 1;",
         {"x": {"i": 3, "next": {}}}, {"x": {"i": 3}}),
    ],
)  # fmt: skip
def test_evolution(writer: str, reader: str, value: Any, expected: Any) -> None:
    assert read(text(writer), text(reader), written(text(writer), value)) == expected


@pytest.mark.parametrize(
    ("writer", "reader", "value", "says"),
    [
        ("int64 x = 1;", "int32 x = 1;", {"x": 2**40}, "'x' is a int64 of its writer's"),
        ("sint32 x = 1;", "int32 x = 1;", {"x": 1}, "'x' is a sint32 of its"),
        ("fixed64 x = 1;", "double x = 1;", {"x": 1}, "'x' is a fixed64 of its"),
        ("int64 x = 1;", "bool x = 1;", {"x": 2}, "a bool of the reader's"),
        ("repeated int32 x = 1;", "int32 x = 1;", {"x": [1, 2]}, "repeated int32"),
        ("string a = 1; string b = 2;", "string b = 1; string a = 2;", {"a": "1"}, "'b' is number"),
        ("message M { int32 a = 1; } map<string, M> x = 1;",
         "message M { string a = 1; } map<string, M> x = 1;", {"x": {}}, "'a' is a int32"),
        ("enum E { A = 0; B = 1; } E x = 1;", "enum E { B = 0; A = 1; } E x = 1;", {},
         "has A as 0"),
        ("enum E { A = 0; C = 2; } E x = 1;", "enum E { A = 0; } E x = 1;", {"x": "C"}, "has no 2"),
        ("bytes x = 1;", "string x = 1;", {"x": "/w=="}, "(?i)utf-?8|pars"),
    ],
)  # fmt: skip
def test_a_value_that_would_be_altered_is_not_read(
    writer: str, reader: str, value: Any, says: str
) -> None:
    with pytest.raises(Exception, match=says):
        read(text(writer), text(reader), written(text(writer), value))


def test_an_enum_of_proto2_drops_what_it_does_not_know() -> None:
    writer, reader = (
        SchemaText(f"message M {{ enum E {{ A = 0; {more} }} repeated E x = 1; }}")
        for more in ("C = 2;", "")
    )
    with pytest.raises(ValueError, match="'x' may be C of its writer's"):
        read(writer, reader, written(writer, {"x": ["A", "C"]}))


def test_the_message_of_a_record_is_named_by_its_indexes() -> None:
    several = SchemaText(
        'syntax = "proto3"; message Refund { int32 id = 1; }'
        " message Order { int32 id = 1; message Line { int32 id = 1; } }"
    )
    orders = SchemaText('syntax = "proto3"; message Order { int32 id = 1; }')
    body = b"\x08\x05"
    assert read(several, orders, b"\x02\x02" + body) == {"id": 5}
    assert read(orders, orders, b"\x02\x00" + body) == {"id": 5}  # [0], written out
    for head, name in ((b"\0", "Refund"), (b"\x04\x02\x00", "Order.Line")):
        with pytest.raises(ValueError, match=f"is a {name}, and the first message .* is Order"):
            read(several, orders, head + body)


@pytest.mark.parametrize("record", [b"", b"\x02", b"\x02\x0c\x08\x05", b"\x01\x08", b"\0\x08",
                                    b"\0\x0a\x05ab", b"\0\x0a\x01\xff", b"\x80\x80"])  # fmt: skip
def test_bytes_of_another_form(record: bytes) -> None:
    schema = text("string x = 1;")
    values = ProtobufValues(schema, "orders")
    with pytest.raises(Exception):  # noqa: B017
        pa.array(values.reading(schema)([record]), values.type)


def test_references_and_descriptors() -> None:
    """A reference, and what Confluent's serializer for Python registers: descriptors in Base64."""
    reference = 'syntax = "proto3"; package a; message R { int32 i = 1; }'
    by_text = text("a.R r = 1;", ("a/r.proto", reference))
    by_text = SchemaText(f'{by_text.text} import "a/r.proto";', by_text.references)
    assert str(ProtobufValues(by_text, "orders").type) == "struct<r: struct<i: int32>>"
    given = descriptor_pb2.FileDescriptorProto(name="any.proto", syntax="proto3")
    given.dependency.extend(["a/r.proto", "google/protobuf/timestamp.proto"])
    message = given.message_type.add(name="Q")
    for number, type_ in enumerate((".a.R", ".google.protobuf.Timestamp"), 1):
        message.field.add(name=f"f{number}", number=number, type=11, label=1, type_name=type_)
    encoded = base64.b64encode(given.SerializeToString()).decode()
    found = ProtobufValues(SchemaText(encoded, by_text.references), "orders").type
    assert [str(field.type) for field in found] == ["struct<i: int32>", "timestamp[us, tz=UTC]"]
    known = base64.b64encode(type_pb2.DESCRIPTOR.serialized_pb).decode()
    assert ProtobufValues(SchemaText(known), "orders").type.field(0).name == "name"


@pytest.mark.parametrize(
    ("reader", "says"),
    [
        (text("Order next = 1;"), "'next' of the reader's schema has shop.Order within itself"),
        (
            text("message M { } M x = 1;"),
            "'x' of the reader's schema is a shop.Order.M, which has no",
        ),
        (SchemaText('syntax = "proto3"; import "x/y.proto"; message M { }'), "x/y.proto: File not"),
        (SchemaText('syntax = "proto3";'), "the schema has no message"),
        (SchemaText("{"), "orders: the reader's schema is no Protobuf schema"),
        (text("int32 x = 1;", ("../up.proto", "")), "a reference has the name '../up.proto'"),
    ],
)
def test_schemas_without_columns(reader: SchemaText, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ProtobufValues(reader, "orders")


def test_a_compiler_that_does_not_run_is_no_fault_of_the_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else good records would be set aside as unreadable, for as long as the worker lives."""
    schema = text("int32 of_no_other_test = 1;")
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(OperationFailedError, match="protoc does not run"):
        message_of(schema)
    monkeypatch.undo()
    assert message_of(schema).full_name == "shop.Order"


def test_a_reference_is_no_program() -> None:
    """protoc runs where the references lie, which may have a module's name."""
    schema = text("int32 x = 1;", ("grpc_tools.py", "raise SystemExit(3)"))
    assert ProtobufValues(schema, "orders").type.names == ["x"]

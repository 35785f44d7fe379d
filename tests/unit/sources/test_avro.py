"""Avro values: what is read of a record is what was written, or nothing.

How: fastavro writes each record by its writer's schema; `AvroValues` reads it by the reader's, and
Arrow takes it as a column of its type.
"""

from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from seamark.model.errors import ConfigurationError
from seamark.model.schema_registry import SchemaText
from seamark.sources.avro import AvroValues

UTC = datetime.timezone.utc


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record of fields (name, type, and what else a field has)."""
    made = [{"name": n, "type": t, **dict(*rest)} for n, t, *rest in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def text(schema: Any, *references: tuple[str, Any]) -> SchemaText:
    return SchemaText(json.dumps(schema), tuple((n, json.dumps(s)) for n, s in references))


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def read(writer: Any, reader: Any, payload: bytes) -> Any:
    values = AvroValues(text(reader), "orders")
    reading = values.reading(text(writer))
    found = pa.array(reading([payload] * 100), values.type).to_pylist()
    assert str(found) == str(found[:1] * 100)
    return found[0]


DECIMAL = logical("bytes", "decimal", precision=9, scale=2)
FIXED = {"type": "fixed", "name": "F", "size": 4}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
MS = 1_700_000_000_123
AT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123000)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("long", 2**63 - 1, 2**63 - 1),
        ("float", 0.1, 0.10000000149011612),
        ("double", float("inf"), float("inf")),
        ("string", "a\0'\"\\ 日本 🙂", "a\0'\"\\ 日本 🙂"),
        ("bytes", b"\0\xff", b"\0\xff"),
        (FIXED, b"\0\1\2\3", b"\0\1\2\3"),
        (ENUM, "B", "B"),
        (["null", "string"], None, None),
        (["string", "null"], "", ""),
        (["null", ENUM], "A", "A"),
        (["null", FIXED], b"abcd", b"abcd"),
        (["int"], 3, 3),
        (["null", "int", "long"], 2**40, 2**40),
        (["float", "double"], 0.1, 0.1),
        ({"type": "array", "items": ["null", "int"]}, [1, None, 3], [1, None, 3]),
        ({"type": "map", "values": "long"}, {"": 1, "k": 2}, [("", 1), ("k", 2)]),
        (logical("int", "date"), -719_162, datetime.date(1, 1, 1)),
        (logical("long", "timestamp-millis"), MS, AT.replace(tzinfo=UTC)),
        (logical("long", "timestamp-micros"), MS * 1000, AT.replace(tzinfo=UTC)),
        (logical("long", "local-timestamp-millis"), MS, AT),
        (logical("int", "time-millis"), 86_399_999, 86_399_999),
        (logical("long", "time-micros"), 1, 1),
        (logical("long", "timestamp-nanos"), MS * 10**6 + 1, MS * 10**6 + 1),
        (logical("string", "uuid"), "00000000-0000-0000-0000-000000000001",
         "00000000-0000-0000-0000-000000000001"),
        (DECIMAL, b"\xff", Decimal("-0.01")),
        (DECIMAL, (123456789).to_bytes(4, "big"), Decimal("1234567.89")),
        (["null", DECIMAL], None, None),
        (logical("bytes", "decimal", precision=38), (10**38 - 1).to_bytes(16, "big"),
         Decimal("9" * 38)),
        ({**FIXED, "logicalType": "decimal", "precision": 5, "scale": 1}, b"\xff\xff\xff\xfe",
         Decimal("-0.2")),
        ({"type": "array", "items": DECIMAL}, [b"\1"], [Decimal("0.01")]),
        (["null", record(("d", DECIMAL), name="N")], {"d": b"\2"}, {"d": Decimal("0.02")}),
        (["null", "string", "int"], 5, {"member0": None, "member1": 5}),
        ([record(("i", "int"), name="A"), record(("i", "int"), name="B"), "null"],
         ("B", {"i": 1}), {"member0": None, "member1": {"i": 1}}),
    ],
)  # fmt: skip
def test_a_value_is_read_as_it_was_written(type_: Any, value: Any, expected: Any) -> None:
    stored = json.loads(json.dumps(type_).replace("logicalType", "ignored"))
    one, more = record(("x", type_)), record(("x", type_), ("y", "int", {"default": 7}))
    payload = written(record(("x", stored)), {"x": value})
    assert read(one, one, payload) == {"x": expected}
    assert read(one, more, payload) == {"x": expected, "y": 7}


def test_a_moment_that_python_cannot_hold() -> None:
    schema = record(("x", logical("long", "timestamp-micros")))
    values = AvroValues(text(schema), "orders")
    rows = values.reading(text(schema))([written(record(("x", "long")), {"x": 2**62})])
    assert pa.array(rows, values.type).field("x").cast(pa.int64()).to_pylist() == [2**62]


INNER = record(("a", "int"), ("b", "bytes", {"default": "\u00ff"}), name="I")
V1 = record(("id", "int"), ("gone", "string"), ("old", ["null", "int"]))


def test_evolution() -> None:
    """Promoted, removed, renamed by an alias; added with defaults of every form."""
    later = record(
        ("id", "long"),
        ("new", ["null", "long"], {"aliases": ["old"]}),
        ("s", "string", {"default": "ö"}),
        ("b", "bytes", {"default": "\u0000\u00ff"}),
        ("d", DECIMAL, {"default": "\u0001"}),
        ("i", INNER, {"default": {"a": 1}}),
        ("l", {"type": "array", "items": "I"}, {"default": [{"a": 2, "b": "x"}]}),
        ("m", {"type": "map", "values": "double"}, {"default": {"k": 1}}),
        ("n", ["null", "int"], {"default": None}),
        ("at", logical("long", "timestamp-millis"), {"default": 1000}),
        ("u", ["int", "bytes"], {"default": "s"}),
    )
    payload = written(V1, {"id": 5, "gone": "x", "old": 6})
    expected = {
        "id": 5, "new": 6, "s": "ö", "b": b"\0\xff", "d": Decimal("0.01"),
        "i": {"a": 1, "b": b"\xff"}, "l": [{"a": 2, "b": b"x"}], "m": [("k", 1.0)], "n": None,
        "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "u": {"member0": None, "member1": b"s"},
    }  # fmt: skip
    values = AvroValues(text(later), "orders")
    reading = values.reading(text(V1))
    twice = pa.array(reading([payload, payload]), values.type)
    assert twice.to_pylist() == [expected, expected]


def test_a_record_under_another_name() -> None:
    """fastavro before 1.9.4 knows an alias by its whole name alone, as it stands."""
    old = record(("a", "int"), name="shop.Old")
    renamed = record(("a", "int"), name="shop.New") | {"aliases": ["Old"]}
    for writer, reader, value in (
        (old, renamed, {"a": 1}),
        (record(("m", ["null", old])), record(("m", ["null", renamed])), {"m": {"a": 1}}),
    ):
        reading = AvroValues(text(reader), "orders").reading(text(writer))
        assert reading([written(writer, value)]) == [value]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "says"),
    [
        (record(("x", "long")), record(("x", "int")), {"x": 1}, "long"),
        (record(("x", "long")), record(("x", "double")), {"x": 2**53 + 1}, "'x' is a long"),
        (record(("x", "long")), record(("x", ["null", "double", "long"])), {"x": 1}, "round"),
        (record(("x", "int")), record(("x", "float")), {"x": 2**24 + 1}, "float would round"),
        (record(("x", logical("long", "timestamp-micros"))),
         record(("x", logical("long", "timestamp-millis"))), {"x": 1}, "timestamp-micros of its"),
        (record(("x", ["null", DECIMAL])), record(("x", {**DECIMAL, "scale": 3})), {"x": None},
         r"decimal\(9,2\) of its writer's, and a decimal\(9,3\)"),
        (record(("x", {"type": "array", "items": logical("int", "date")})),
         record(("x", {"type": "array", "items": logical("int", "time-millis")})), {"x": []},
         r"'x\[\]' is a date"),
        (record(("x", {"type": "map", "values": "long"})),
         record(("x", {"type": "map", "values": "float"})), {"x": {}}, r"'x\{\}'"),
        (record(("x", "int")), record(("x", "int"), ("y", "int")), {"x": 1}, "default"),
        (record(("x", ["null", "int"])), record(("x", "int")), {"x": None}, "null"),
        (record(("x", {**ENUM, "symbols": ["A", "C"]})), record(("x", ENUM)), {"x": "C"}, "C not"),
        (record(("x", {**FIXED, "size": 3})), record(("x", FIXED)), {"x": b"abc"}, "size"),
        (record(("x", "int")), record(("x", "int"), name="Other"), {"x": 1}, "mismatch"),
        (record(("x", "bytes")), record(("x", ["string", "bytes"])), {"x": b"a"},
         "is a bytes of its writer's, and in the reader's union stands behind string"),
        (record(("x", "int")), record(("x", ["double", "int"])), {"x": 1}, "behind double"),
        (record(("x", record(("i", "int"), name="b.R"))),
         record(("x", ["null", record(("i", "int"), name="a.R"),
                       record(("i", "int"), name="b.R")])), {"x": {"i": 1}}, "b.R of .* a.R"),
        (record(("x", "string")), record(("x", DECIMAL)), {"x": "12.5"}, "is a string of"),
        (record(("x", DECIMAL)), record(("x", "string")), {"x": b"1"}, "a string of the reader"),
        (record(("old", "int"), ("x", "int")), record(("x", "int", {"aliases": ["old"]})),
         {"old": 2, "x": 1}, "'x' is x and old of its writer's"),
    ],
)  # fmt: skip
def test_a_value_that_would_be_altered_is_not_read(
    writer: Any, reader: Any, value: Any, says: str
) -> None:
    stored = json.loads(json.dumps(writer).replace("logicalType", "ignored"))
    value = {"x": b"\1"} if value == {"x": None} and "decimal" in str(writer) else value
    with pytest.raises((ValueError, fastavro.read.SchemaResolutionError), match=says):
        read(writer, reader, written(stored, value))


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("string", b"\x0aab"), ("string", b"\x04\xff\xfe"), ("string", b"\x05ab"), ("int", b""),
        ("int", b"\2\2"), ("double", b"1234567"), (FIXED, b"abc"), (ENUM, b"\x08"),
        (["null", "int"], b"\x08"), ("int", b"\xfe\xff\xff\xff\x1f"), (DECIMAL, b"\0"),
        (DECIMAL, b"\x0a" + b"\x7f" * 5), ("boolean", b""),
        ({"type": "array", "items": "int"}, b"\x04\x02"),
    ],
)  # fmt: skip
def test_bytes_of_another_form(type_: Any, payload: bytes) -> None:
    schema = record(("x", type_))
    with pytest.raises((ValueError, EOFError, IndexError, OverflowError)):
        read(schema, schema, payload)


def test_a_schema_with_references() -> None:
    """Also one that is a union of them, for a topic with records of several kinds."""
    a, b = record(("i", "int"), name="A"), record(("a", "A"), name="B")
    schema = text(["A", "B"], ("A", a), ("B", b))
    values = AvroValues(schema, "events")
    assert values.type == pa.struct(
        [("member0", pa.struct([("i", pa.int32())])),
         ("member1", pa.struct([("a", pa.struct([("i", pa.int32())]))]))]
    )  # fmt: skip
    assert values.reading(schema)([b"\x02\x06"]) == [{"member1": {"a": {"i": 3}}}]
    # A record of a topic's earlier days, which had one kind, does not name it.
    with pytest.raises(ValueError, match="branch"):
        values.reading(text(a))([b"\x06"])
    one = AvroValues(text(["A", "null"], ("A", a)), "events")
    assert one.reading(text(a))([b"\x06"]) == [{"i": 3}]


def test_a_type_without_a_record() -> None:
    assert read("string", "string", b"\4ab") == "ab"
    assert read("int", "long", b"\2") == 1


TREE = record(("v", "int"), ("next", ["null", "R"]))


@pytest.mark.parametrize(
    ("reader", "says"),
    [
        (TREE, "'next' of the reader's schema has the record R within itself"),
        (record(("x", "null")), "'x' of the reader's schema is of the type null"),
        (record(("x", [])), "is always null"),
        (record(("x", {**DECIMAL, "precision": 39})), r"decimal\(39,2\)"),
        (record(("x", ["string", ENUM])), "both string and enum"),
        (record(), "is of the type record"),
        (
            record(("i", INNER, {"default": {}})),
            "'i' of the reader's schema has the default|no Avro",
        ),
        (
            record(("i", ["null", INNER], {"default": {}})),
            "'i' of the reader's schema has the d|no Avro",
        ),
        ({"type": "what"}, "no Avro schema"),
    ],
)
def test_schemas_without_columns(reader: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        AvroValues(text(reader), "orders")


def test_a_writer_may_have_more_than_spark_has() -> None:
    payload = written(TREE, {"v": 1, "next": {"v": 2, "next": None}})
    assert read(TREE, record(("v", "long")), payload) == {"v": 1}


def test_text_that_is_no_schema() -> None:
    with pytest.raises(ConfigurationError, match="orders: the reader's schema is no Avro schema"):
        AvroValues(SchemaText("{"), "orders")

"""JSON values by a schema: what is read is what was written, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from seamark.model.errors import ConfigurationError
from seamark.model.schema_registry import SchemaText
from seamark.sources.json_schema import JsonValues


def text(schema: Any, *references: tuple[str, Any]) -> SchemaText:
    return SchemaText(json.dumps(schema), tuple((n, json.dumps(s)) for n, s in references))


def read(schema: Any, record: str | bytes, *references: tuple[str, Any]) -> Any:
    values = JsonValues(text(schema, *references), "orders")
    payload = record.encode() if isinstance(record, str) else record
    rows = values.reading(text({}))([payload, payload])
    one, two = pa.array(rows, values.type).to_pylist()
    assert one == two
    return one


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ({"type": "string"}, '"a\\u0000 ä 🙂"', "a\0 ä 🙂"),
        ({"type": "string", "format": "date-time"}, '"2026-01-31"', "2026-01-31"),
        ({"type": "integer"}, "9223372036854775807", 2**63 - 1),
        ({"type": "integer"}, "1.0", 1),
        ({"type": "number"}, "0.1", 0.1),
        ({"type": "number"}, "9007199254740992", float(2**53)),
        ({"type": "number"}, "0.30000000000000004", 0.30000000000000004),
        ({"type": "number"}, "-0.0", -0.0),
        ({"type": "number"}, "5e-324", 5e-324),
        ({"type": ["integer", "number"]}, "1e3", 1000.0),
        ({"type": "boolean"}, "true", True),
        ({"type": ["null", "string"]}, "null", None),
        ({"oneOf": [{"type": "null", "title": "Not included"}, {"type": "integer"}]}, "5", 5),
        ({"type": "array", "items": {"type": "string"}}, '["a", null]', ["a", None]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, '{"": 1}', [("", 1)]),
        (thing(a=thing(b={"type": "integer"})), '{"a": {"b": 1}, "other": 2}', {"a": {"b": 1}}),
    ],
)
def test_a_value_is_read_as_it_was_written(type_: Any, value: str, expected: Any) -> None:
    assert read(thing(x=type_), f'{{"x": {value}, "later": [1]}}') == {"x": expected}
    assert read(thing(x=type_, y={"type": "string"}), "{}") == {"x": None, "y": None}


def test_references() -> None:
    address = thing(city={"$ref": "#/definitions/text"})
    address["definitions"] = {"text": {"type": "string"}}
    schema = thing(
        home={"$ref": "address.json"}, work={"$ref": "address.json"}, n={"$ref": "#/$defs/n~1"}
    )
    schema["$defs"] = {"n/": {"type": "integer"}}
    record = '{"home": {"city": "x"}, "n": 1}'
    assert read(schema, record, ("address.json", address)) == {
        "home": {"city": "x"}, "work": None, "n": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("integer", "1.5"), ("integer", "true"), ("integer", '"1"'), ("integer", "1e30"),
        ("integer", "9223372036854775808"), ("number", "9007199254740993"), ("number", '"1"'),
        ("number", "12345678901234567.89"), ("number", "1e999"), ("number", "NaN"),
        ("number", "1e-400"), ("number", "1.2345e-320"), ("number", "true"),
        ("integer", "1.2345678901234568e18"),
        ("string", "1"), ("string", '"\\ud800"'), ("boolean", "1"), ("string", "{}"),
    ],
)  # fmt: skip
def test_a_value_that_would_be_altered_is_not_read(type_: str, value: str) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        read(thing(x={"type": type_}), f'{{"x": {value}}}')


@pytest.mark.parametrize(
    "record",
    ["", "{", '{"x": ["a"]} tail', '{"x": "ab"}', '{"x": {"0": "a"}}', '{"x": [], "x": []}',
     b'{"x": ["\xff"]}', '[["x", ["a"]]]', '"x"', "[]"],
)  # fmt: skip
def test_text_of_another_form(record: str | bytes) -> None:
    with pytest.raises(ValueError):
        read(thing(x={"type": "array", "items": {"type": "string"}}), record)


TREE = thing(next={"$ref": "#"})


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (TREE, "'next' of the reader's schema has # within itself|'next.next'"),
        (thing(x={}), "'x' of the reader's schema is {}, for which"),
        (thing(x={"type": ["string", "integer"]}), "no one type"),
        (thing(x={"$ref": "#/nowhere"}), "refers to #/nowhere, which is not there"),
        ({"type": "object"}, "the value of the reader's schema"),
        (True, "the value of the reader's schema is true"),
    ],
)
def test_schemas_without_columns(schema: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        JsonValues(text(schema), "orders")


def test_text_that_is_no_json() -> None:
    with pytest.raises(ConfigurationError, match="orders: the reader's schema is no JSON"):
        JsonValues(SchemaText("{"), "orders")


@pytest.mark.parametrize(
    "schema",
    [{"type": 5}, {"type": [{}]}, {"oneOf": 5}, {"type": "object", "properties": ["a"]}],
    ids=["type", "types", "branches", "properties"],
)
def test_json_that_is_no_schema(schema: Any) -> None:
    with pytest.raises(ConfigurationError, match="orders: the reader's schema is no JSON Schema"):
        JsonValues(text(schema), "orders")

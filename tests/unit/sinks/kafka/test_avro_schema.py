"""The Avro schema of a value: made from Spark's types, or given and compared with the columns.

fastavro reads each schema made: a schema refused by every Avro library fails here.
"""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column
from seamark.sinks.kafka.avro_schema import schema_of
from seamark.sinks.kafka.schema_registry import framed


def made(*columns: Column, topic: str = "orders") -> dict[str, object]:
    text = schema_of(columns, topic, "KafkaSink")
    fastavro.parse_schema(json.loads(text))
    found: dict[str, object] = json.loads(text)
    return found


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("tinyint", "int"),
        ("bigint", "long"),
        ("string collate UTF8_LCASE", "string"),
        ("varchar(10)", "string"),
        ("binary", "bytes"),
        ("decimal(12,2)",
         {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
        ("timestamp", {"type": "long", "logicalType": "timestamp-micros"}),
        ("timestamp_ntz", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("array<date>",
         {"type": "array", "items": ["null", {"type": "int", "logicalType": "date"}]}),
        ("map<string,decimal(3,1)>", {"type": "map", "values": ["null",
         {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}]}),
        ("struct<a:int,b:array<struct<c:map<string,int>>>>", {
            "type": "record", "name": "orders_value_x", "fields": [
                {"name": "a", "type": ["null", "int"], "default": None},
                {"name": "b", "default": None, "type": ["null", {"type": "array", "items": ["null",
                 {"type": "record", "name": "orders_value_x_b", "fields": [
                     {"name": "c", "default": None, "type": ["null",
                      {"type": "map", "values": ["null", "int"]}]}]}]}]},
            ]}),
    ],
)  # fmt: skip
def test_types(type_: str, expected: object) -> None:
    (field,) = made(Column("x", type_))["fields"]  # type: ignore[misc]
    assert field == {"name": "x", "type": ["null", expected], "default": None}


def test_records_whose_paths_read_alike_have_two_names() -> None:
    columns = (
        Column("a", "struct<b_c:struct<x:int>>"), Column("a_b", "struct<c:struct<y:int>>")
    )  # fmt: skip
    fields: Any = made(*columns)["fields"]
    inner = [field["type"][1]["fields"][0]["type"][1]["name"] for field in fields]
    assert inner == ["orders_value_a_b_c", "orders_value_a_b_c_"]


def test_the_record_is_named_after_the_topic() -> None:
    assert made(Column("x", "int"), topic="1.or-ders")["name"] == "_1_or_ders_value"


GIVEN = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)


def test_a_given_schema_is_taken_as_it_is() -> None:
    assert schema_of([Column("ID", "bigint")], "orders", "KafkaSink", GIVEN) == GIVEN


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ([Column("id", "bigint"), Column("x", "int")], ["no field for the column 'x'", "value="]),
        ([Column("note", "string")], ["needs the field 'id'", "null"]),
    ],
)
def test_columns_that_do_not_fit_a_given_schema(columns: list[Column], parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        schema_of(columns, "orders", "KafkaSink", GIVEN)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_a_value_begins_with_the_id_of_its_schema(kind: pa.DataType) -> None:
    values = pa.array([b"skipped", b"abc", b"", None], kind).slice(1)
    assert framed(values, b"\0\0\0\1\2").to_pylist() == [b"\0\0\0\1\2abc", b"\0\0\0\1\2", None]

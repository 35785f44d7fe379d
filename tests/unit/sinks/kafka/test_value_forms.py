"""Values of columns as Protobuf and JSON: what is read of a row is what was written, or the row is
refused.

How: each form makes schema and bytes of a column; the source's own reader, Google's library and
Python's `jsonschema` read them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import message_factory

from seamark.contracts.sink import SinkContext
from seamark.model.errors import ConfigurationError, PreflightError
from seamark.model.protobuf_schema import message_of
from seamark.model.schema import Column
from seamark.model.schema_registry import SchemaText
from seamark.sinks.kafka import KafkaSink, schema_registry
from seamark.sinks.kafka.value_forms import FORMS
from seamark.sources.json_schema import JsonValues
from seamark.sources.protobuf import ProtobufValues
from seamark.verify.conformance.odd_values import ODD_VALUES
from tests.unit.sources.conftest import Server, server

__all__ = ["server"]  # a fixture

READERS: dict[str, Any] = {"protobuf": ProtobufValues, "json-schema": JsonValues}


def schema(form: str, *columns: Column) -> SchemaText:
    return SchemaText(FORMS[form].schema_of(columns, "orders", "KafkaSink"))


def encoded(form: str, values: pa.StructArray) -> tuple[list[bytes], dict[int, str]]:
    batch, refusals = FORMS[form].encoded(pa.record_batch({"value": values}))
    made = batch.column("value").to_pylist()
    return made, {row.index: row.reason for row in refusals.rows()}


def column(type_: pa.DataType, values: Sequence[Any]) -> pa.StructArray:
    """A struct of one field, cut out of a longer one."""
    made = pa.StructArray.from_arrays([pa.array([*values[-1:], *values], type_)], ["v"])
    return made.slice(1)


def read_back(form: str, text: SchemaText, made: Sequence[bytes]) -> list[pa.Scalar]:
    values = READERS[form](text, "orders")
    rows = values.reading(text)([FORMS[form].indexes + one for one in made])
    return list(pa.array(rows, values.type).field("v"))


def as_sent(form: str, type_: pa.DataType, text: str, value: Any) -> str:
    """Return how a value is to be found, as text; as the source's documentation has it."""
    if value is None:
        return "None"
    if pa.types.is_timestamp(type_) and (type_.tz is None or form == "json-schema"):
        day, _, time = text.rpartition(" ")
        whole, _, part = time.partition(".")
        return f"{day}T{whole}.{part:0<6}{'Z' if type_.tz else ''}"
    if pa.types.is_timestamp(type_):
        return str(value)  # microseconds
    if pa.types.is_date(type_):
        return text
    if pa.types.is_decimal(type_):
        return f"{value:f}"
    if form == "json-schema" and pa.types.is_binary(type_):
        return base64.b64encode(value).decode()
    if pa.types.is_floating(type_):
        return repr(pa.scalar(value, type_).as_py())
    if pa.types.is_list(type_):
        return repr([as_sent(form, type_.value_type, "", one) for one in value])
    if pa.types.is_map(type_):
        return repr([(key, as_sent(form, type_.item_type, "", one)) for key, one in value])
    if pa.types.is_struct(type_):
        return repr([as_sent(form, f.type, "", value[f.name]) for f in type_])
    return str(value)


def as_found(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "None"
    if pa.types.is_temporal(value.type):
        return str(value.value)
    if pa.types.is_floating(value.type):
        return repr(value.as_py())
    if pa.types.is_map(value.type):
        keys, items = value.values.field("key"), value.values.field("value")
        return repr([(k.as_py(), as_found(i)) for k, i in zip(keys, items, strict=True)])
    if pa.types.is_list(value.type):
        return repr([as_found(one) for one in value.values])
    if pa.types.is_struct(value.type):
        return repr([as_found(value[field.name]) for field in value.type])
    return str(value.as_py())


@pytest.mark.parametrize("type_", ODD_VALUES)
@pytest.mark.parametrize("form", READERS)
def test_each_odd_value_is_read_as_it_was_written_or_refused(form: str, type_: str) -> None:
    kind, values = ODD_VALUES[type_]
    texts, sent = [*values, ""], [*values.values(), None]
    text = schema(form, Column("v", type_))
    made, refused = encoded(form, column(kind, sent))
    kept = [at for at in range(len(sent)) if at not in refused]
    found = read_back(form, text, [made[at] for at in kept])
    for at, one in zip(kept, found, strict=True):
        assert as_found(one) == as_sent(form, kind, texts[at], sent[at]), texts[at][:80]
    nested_null = pa.types.is_nested(kind) and not pa.types.is_struct(kind)
    assert (len(sent) - 1 in refused) == (form == "protobuf" and nested_null)
    again, _ = encoded(form, column(kind, sent))
    assert again == made
    for one in kept if form == "json-schema" else ():
        document = json.loads(made[one])
        assert list(document) == ["v"]
        jsonschema.validate(document, json.loads(text.text), jsonschema.Draft7Validator)
    for one in kept if form == "protobuf" else ():
        message = message_factory.GetMessageClass(message_of(text)).FromString(made[one])
        # Google's own bytes are the same, if its maps have one entry or none.
        if not pa.types.is_map(kind):
            assert message.SerializeToString() == made[one]


@pytest.mark.parametrize("form", READERS)
def test_text_that_is_not_utf8(form: str) -> None:
    texts = pa.array([b"a", b"a\xffb", b"b"]).view(pa.string())
    made, refused = encoded(form, pa.StructArray.from_arrays([texts], ["v"]))
    assert refused == {1: "the column `v` is not UTF-8; mend it"}
    text = schema(form, Column("v", "string"))
    assert [s.as_py() for s in read_back(form, text, made[::2])] == ["a", "b"]


NESTED = "array<struct<m:map<string,struct<x:array<int>>>,d:date,t:timestamp>>"
DEEP = pa.list_(pa.struct([
    ("m", pa.map_(pa.string(), pa.struct([("x", pa.list_(pa.int32()))]))),
    ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")),
]))  # fmt: skip


@pytest.mark.parametrize("form", READERS)
def test_nested_values_of_many_rows(form: str) -> None:
    """Of every length, in slices; a null and a NaN refuse their own row alone."""
    chance = random.Random(7)

    def one() -> dict[str, Any]:
        keys = sorted({str(chance.randrange(9)) for _ in range(chance.randrange(4))})
        return {
            "m": [(k, {"x": [chance.randrange(-9, 9) for _ in range(chance.randrange(3))]})
                  for k in keys],
            "d": chance.choice([None, chance.randrange(9)]),
            "t": chance.choice([None, -1, 0, 999_999, 10**15]),
        }  # fmt: skip

    values = [[one() for _ in range(chance.randrange(4))] for _ in range(300)]
    text = schema(form, Column("v", NESTED))
    whole = pa.array(values, DEEP)
    for start, end in ((0, 300), (7, 8), (150, 290)):
        part = pa.StructArray.from_arrays([whole], ["v"]).slice(start, end - start)
        made, refused = encoded(form, part)
        assert not refused
        assert [as_found(s) for s in read_back(form, text, made)] == [
            repr([
                repr([repr([(k, repr([repr([str(n) for n in x["x"]])])) for k, x in row["m"]]),
                      str(_found(row["d"], "d", form)), str(_found(row["t"], "t", form))])
                for row in rows
            ])
            for rows in values[start:end]
        ]  # fmt: skip
    null = {"m": None, "d": None, "t": None}
    made, refused = encoded(form, column(DEEP, [[], [null], [{**null, "m": []}]]))
    expected = {1: "the column `v.m` is null or has a null in it, which an array or map of "
                "Protobuf cannot: coalesce it"} if form == "protobuf" else {}  # fmt: skip
    assert refused == expected
    numbers = pa.list_(pa.float64())
    made, refused = encoded(form, column(numbers, [[1.0], [2.0, float("nan")], []]))
    assert list(refused) == ([1] if form == "json-schema" else [])


def _found(value: int | None, name: str, form: str) -> Any:
    if value is None:
        return None
    if name == "d":
        return np.datetime64(value, "D")
    return value if form == "protobuf" else f"{np.datetime64(value, 'us')}Z"


@pytest.mark.parametrize("form", READERS)
def test_a_map_has_the_same_bytes_in_any_order(form: str) -> None:
    entries = [("é\0"[n % 2] * n, n) for n in range(9)]
    kind = pa.map_(pa.string(), pa.int32())
    one, _ = encoded(form, column(kind, [[], entries, entries[:3]]))
    other, _ = encoded(form, column(kind, [[], entries[::-1], entries[2::-1]]))
    assert one == other and one[1] != one[2]


def test_protobuf_fields_are_numbered_as_they_stand() -> None:
    columns = (
        Column("id", "bigint"), Column("price", "decimal(9,2)"), Column("at", "timestamp"),
        Column("tags", "array<string>"), Column("n", "map<int,struct<n_message:date>>"),
    )  # fmt: skip
    assert schema("protobuf", *columns).text == (
        'syntax = "proto3";\nimport "google/protobuf/timestamp.proto";\n'
        "message orders_value { optional int64 id = 1; optional string price = 2; "
        "optional google.protobuf.Timestamp at = 3; repeated string tags = 4; "
        "message n_message { optional string n_message = 1; } map<int32, n_message> n = 5; }\n"
    )


def test_a_json_schema_is_closed() -> None:
    text = schema("json-schema", Column("ä b", "struct<x:binary,y:map<string,date>>")).text
    assert json.loads(text) == {
        "$schema": "http://json-schema.org/draft-07/schema#", "title": "orders_value",
        "type": "object", "additionalProperties": False, "properties": {"ä b": {
            "type": ["null", "object"], "additionalProperties": False, "properties": {
                "x": {"type": ["null", "string"], "contentEncoding": "base64"},
                "y": {"type": ["null", "object"],
                      "additionalProperties": {"type": ["null", "string"], "format": "date"}},
            }}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "column_", "parts"),
    [
        ("protobuf", Column("a b", "int"), ["'a b'", "Protobuf", "withColumnRenamed"]),
        ("protobuf", Column("l", "array<array<int>>"), ["'l'", "array<array<int>>", "Protobuf"]),
        ("protobuf", Column("m", "map<date,int>"), ["'m'", "map<date,int>", "keys to strings"]),
        ("protobuf", Column("m", "map<string,array<int>>"), ["'m'"]),
        ("protobuf", Column("s", "struct<a:int,a:int>"), ["'a' (in the column 's') is there tw"]),
        ("json-schema", Column("m", "map<int,int>"), ["'m'", "JSON Schema"]),
        ("json-schema", Column("s", "struct<a:interval day>"), ["'s'", "interval day"]),
    ],
)  # fmt: skip
def test_columns_without_a_schema(form: str, column_: Column, parts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        schema(form, column_)
    for part in ["KafkaSink", *parts]:
        assert part in str(caught.value)


class _Versions:
    """A registry's client with these versions of each subject."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def get_versions(self, subject: str) -> list[int]:
        return list(range(1, len(self.texts) + 1))

    def get_version(self, subject: str, version: int) -> Any:
        text = self.texts[version - 1]
        return type("Found", (), {"schema": type("Schema", (), {"schema_str": text})})


A, B, C = (Column(name, "string") for name in "abc")


@pytest.mark.parametrize(
    ("versions", "columns", "says"),
    [
        ([(A, B)], (B, A), "version 1 of t-value does not fit: the column 'b' would be field 1"),
        ([(A, B), (A,)], (A, C), "'c' would be field 2, and there 'b' is field 2"),
        ([(Column("s", "struct<x:int,y:int>"),)], (Column("s", "struct<y:int>"),), "'s.y' would"),
        ([(A, B), (A, B, C)], (A, B), ""),
    ],
)
def test_a_number_stays_with_its_column(
    versions: list[tuple[Column, ...]], columns: tuple[Column, ...], says: str
) -> None:
    client = _Versions(*(schema("protobuf", *one).text for one in versions))
    text = schema("protobuf", *columns).text
    with pytest.raises(PreflightError, match=says) if says else contextlib.nullcontext():
        schema_registry._check_numbers(text, "t-value", client, None, "sink `o`")


@pytest.mark.parametrize(("form", "kind"), [("protobuf", "PROTOBUF"), ("json-schema", "JSON")])
def test_a_start_registers_the_schema(server: Server, form: str, kind: str) -> None:
    """The id goes into the head of each value; a refusal is one line with a remedy."""
    sink = KafkaSink(
        "localhost:9092", "orders", "at-least-once", value_format=form,  # type: ignore[arg-type]
        schema_registry={"url": server.url, "max.retries": 0},
    )  # fmt: skip
    assert list(sink.select_expressions((A,)))[1] == "struct(`a`) AS value"
    context = SinkContext("job", "orders", "out", 1, 5.0, (A,))
    path = "/subjects/orders-value/versions"
    server.answers[path] = [(404, {"error_code": 40401, "message": "no subject"})]
    server.answers[f"POST {path}"] = [(200, {"id": 258})]
    sink.register_schema(context)
    (posted,) = server.posted
    assert (posted["schema"], posted["schemaType"]) == (schema(form, A).text, kind)
    assert FORMS[form].head(258) == b"\0\0\0\1\2" + FORMS[form].indexes
    assert {**sink._schema_ids} == {("job", "out"): 258}
    server.answers[path] = [(200, [1])]
    known = {"subject": "orders-value", "version": 1, "id": 1, "schema": schema(form, B, A).text}
    server.answers[f"{path}/1"] = [(200, known)]
    server.answers[f"POST {path}"] = [(409, {"error_code": 409, "message": "incompatible"})]
    with pytest.raises(PreflightError) as caught:
        sink.register_schema(context)
    says = "the column 'a' would be field 1, and there 'b'" if form == "protobuf" else "select colu"
    assert says in str(caught.value) and "\n" not in str(caught.value)

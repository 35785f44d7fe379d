"""Batches of Kafka's records decoded as a task does: by several schemas, with and without
unreadable ones. How: the schemas come from a small HTTP server, the records from fastavro."""

from __future__ import annotations

import io
import json
import pickle
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from seamark.contracts.source import UNREADABLE
from seamark.model.errors import UnreadableRecordError
from seamark.sources import registry
from seamark.sources.kafka import KafkaSource
from tests.unit.sources.conftest import Server

V1 = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string", "default": "?"}],
}


@pytest.fixture(autouse=True)
def registered(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """V1 has the id 1, V2 the id 2 and is the latest."""
    monkeypatch.setattr(registry, "_DOUBT_S", 0.0)
    for number, schema in enumerate((V1, V2), 1):
        found = {"subject": "t-value", "id": number, "version": number}
        answer = 200, {**found, "schema": json.dumps(schema)}
        server.answers[f"/schemas/ids/{number}"] = [answer]
        server.answers[f"/subjects/t-value/versions/{number}"] = [answer]
    server.answers["/subjects/t-value/versions/latest"] = [answer]
    server.answers["/schemas/ids/3"] = [(404, {"error_code": 40403, "message": "not found"})]
    server.answers["/schemas/ids/4"] = [(200, {"schema": '{"type": "no schema"}'})]


def record(schema_id: int, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema((V1, V2)[schema_id - 1]), value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


def batch(*values: bytes | None, type_: Any = None) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([b"k"] * len(values)),
            "value": pa.array(values, type_ or pa.binary()),
            "topic": ["t"] * len(values),
            "partition": pa.array([3] * len(values), pa.int32()),
            "offset": list(range(10, 10 + len(values))),
        }
    )


def decoded(server: Server, given: pa.RecordBatch, **settings: Any) -> pa.RecordBatch:
    settings = {"value_format": "avro", "schema_registry": {"url": server.url}, **settings}
    source = KafkaSource("localhost:9092", "t", **settings)
    decoder = pickle.loads(pickle.dumps(source.create_decoder()))
    made: pa.RecordBatch = decoder.decode(given)
    assert made.num_rows == given.num_rows
    for name in ("key", "topic", "partition", "offset"):
        assert made.column(name) == given.column(name)
    return made


ONE, TWO = record(1, {"id": 1}), record(2, {"id": 2**40, "s": ""})
READ = [{"id": 1, "s": "?"}, {"id": 2**40, "s": ""}]


@pytest.mark.parametrize("type_", [None, pa.large_binary()])
def test_records_of_two_schemas(server: Server, type_: Any) -> None:
    found = decoded(server, batch(ONE, None, TWO, ONE, type_=type_))
    assert found.schema.names == ["key", "value", "topic", "partition", "offset"]
    assert found.column("value").to_pylist() == [READ[0], None, READ[1], READ[0]]
    assert decoded(server, batch()).num_rows == 0


def test_the_reader_s_schema(server: Server) -> None:
    """A version, the latest, or a text, which asks the registry for the writers' alone."""
    assert decoded(server, batch(ONE), value_schema=1).column("value").to_pylist() == [{"id": 1}]
    asked = len(server.asked)
    found = decoded(server, batch(TWO, TWO), value_schema=json.dumps(V1).replace("int", "long"))
    assert found.column("value").to_pylist() == [{"id": 2**40}] * 2
    assert server.asked[asked:] == ["/schemas/ids/2"]


BAD = [
    (b"", "zero byte"),
    (b"\0\0\0\0", "zero byte"),
    (b"\1" + ONE[1:], "zero byte"),
    (b"\0\0\0\0\3x", "the registry knows no schema of id 3"),
    (b"\0\0\0\0\4x", "schema 4: "),
    (ONE[:5], "Error"),
    (ONE + b"\0", "Error"),
    (TWO[:-1], "Error"),
]


def test_unreadable_records_stay(server: Server) -> None:
    """Good and bad ones in turn, of the same schemas: none borrows its neighbour's bytes."""
    given = [value for bad, _ in BAD for value in (ONE, bad, TWO)]
    found = decoded(server, batch(*given), on_bad_row="keep")
    assert found.schema.field("unreadable").type == UNREADABLE.type
    assert found.column("value").to_pylist() == [READ[0], None, READ[1]] * len(BAD)
    for row, (bad, reason) in zip(found.column("unreadable").to_pylist()[1::3], BAD, strict=True):
        assert row["value"] == bad
        assert reason in row["reason"], row
        assert len(row["reason"]) < 400 and "\n" not in row["reason"]
    good = found.column("unreadable").to_pylist()
    assert set(map(type, good[0::3] + good[2::3])) == {type(None)}


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_an_unreadable_record_fails(server: Server, bad: bytes, reason: str) -> None:
    with pytest.raises(UnreadableRecordError, match=reason) as caught:
        decoded(server, batch(TWO, bad, bad))
    assert "KafkaSource t: t/3 at 11 is not readable as avro" in str(caught.value)
    assert 'on_bad_row="keep"' in str(caught.value)


def test_a_reason_that_quotes_half_a_character(server: Server) -> None:
    """Such text is in no column, nor in a message to Spark."""
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    server.answers["/schemas/ids/5"] = [(200, {"schema": schema, "schemaType": "JSON"})]
    twice = b'\0\0\0\0\5{"\\ud800": 1, "\\ud800": 2}'
    settings = {"value_format": "json-schema", "value_schema": schema, "on_bad_row": "keep"}
    found = decoded(server, batch(twice), **settings).column("unreadable").to_pylist()
    assert found[0]["value"] == twice and "\\ud800, \\ud800" in found[0]["reason"]


def test_protobuf_by_several_schemas(server: Server) -> None:
    """Read by the reader's schema, whichever the writer's; each bad one stays alone."""
    text = 'syntax = "proto3"; message M { optional int32 id = 1; }'
    schemas = {
        5: text,
        6: text.replace("int32", "int64"),
        7: text.replace("int32", "string"),
        8: "{",
    }
    for number, one in schemas.items():
        answer = 200, {"schema": one, "schemaType": "PROTOBUF"}
        server.answers[f"/schemas/ids/{number}"] = [answer]
    good = [b"\0\0\0\0" + bytes([number]) + b"\0\x08\x05" for number in (5, 6)]
    bad = {
        good[0][:-1]: "Error", good[0][:5]: "IndexError", b"\0\0\0\0\7\0": "'id' is a string",
        b"\0\0\0\0\x08\0": "schema 8: ", b"\0\0\0\0\3\0": "knows no schema of id 3",
        b"\0\0\0\0\1\0": "schema 1: ",
    }  # fmt: skip
    given = [good[0], *bad, None, good[1], good[0]]
    settings = {"value_format": "protobuf", "value_schema": schemas[6]}
    found = decoded(server, batch(*given), on_bad_row="keep", **settings)
    nothing = [None] * (len(bad) + 1)
    assert found.column("value").to_pylist() == [{"id": 5}, *nothing, {"id": 5}, {"id": 5}]
    rows = found.column("unreadable").to_pylist()[1 : len(bad) + 1]
    for row, (value, reason) in zip(rows, bad.items(), strict=True):
        assert row["value"] == value and reason in row["reason"], row
        assert len(row["reason"]) < 400 and "\n" not in row["reason"]
    with pytest.raises(UnreadableRecordError, match="t/3 at 11 is not readable as protobuf: "):
        decoded(server, batch(good[0], good[0][:-1]), **settings)

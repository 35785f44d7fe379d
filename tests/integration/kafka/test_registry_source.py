"""Columns of Kafka's records by a real schema registry: in batches and in whole jobs.

How: Confluent's own serializers write records to a real broker, under schemas at a real registry
that change meanwhile; Spark reads them through the source, or through `sm.from_registry`.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from pyspark.sql import DataFrame, SparkSession

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import ConfigurationError, PreflightError
from seamark.model.protobuf_schema import message_of
from seamark.model.schema_registry import SchemaText
from seamark.sources.registry import Registry
from seamark.spark.session import require_format, spark_session
from tests.servers.schema_registry import SchemaRegistryServer
from tests.storage_servers import serving

Topic = Callable[..., str]
UTC = datetime.timezone.utc
AT = datetime.datetime(2026, 1, 31, 8, 0, 0, 123000, tzinfo=UTC)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    session = spark_session("tests")
    require_format(session, "kafka")
    return session


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistryServer]:
    yield from serving(functools.partial(SchemaRegistryServer, tmp_path_factory.mktemp("registry")))


def send(kafka: LocalKafka, topic: str, values: Sequence[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, key=str(number), value=value)
    assert producer.flush(60) == 0


def avro(registry: SchemaRegistryServer, topic: str, schema: Any) -> Callable[[Any], bytes]:
    """Return Confluent's serializer, which registers the schema."""
    client = SchemaRegistryClient({"url": registry.url})
    write = AvroSerializer(client, json.dumps(schema))
    context = SerializationContext(topic, MessageField.VALUE)
    return lambda value: write(value, context)


def record(*fields: Any) -> dict[str, Any]:
    made = [{"name": n, "type": t, **dict(*rest)} for n, t, *rest in fields]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": made}


def raw(spark: SparkSession, kafka: LocalKafka, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    return spark.read.format("kafka").options(**options).load()


def values(frame: DataFrame) -> list[Any]:
    return [row["value"] for row in frame.toArrow().sort_by("offset").to_pylist()]


V1 = record(("id", "int"), ("name", "string"), ("gone", "boolean"))
V2 = record(
    ("id", "long"),
    ("called", "string", {"aliases": ["name"]}),
    ("price", ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
     {"default": None}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}, {"default": 0}),
)  # fmt: skip
V3 = record(*((f["name"], f["type"], f) for f in V2["fields"]), ("more", "int", {"default": 1}))


def test_records_of_three_schemas(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    """Older and newer than the reader's; a tombstone between them. The session has another time
    zone than the worker."""
    name = topic()
    one, two = avro(registry, name, V1), avro(registry, name, V2)
    send(kafka, name, [one({"id": 1, "name": "ä", "gone": True}), None])
    send(kafka, name, [two({"id": 2**40, "called": "b", "price": Decimal("-0.01"), "at": AT})])
    client = {"url": registry.url}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        frame = sm.from_registry(raw(spark, kafka, name), "avro", client, subject=f"{name}-value")
        assert frame.schema["value"].dataType.simpleString() == (
            "struct<id:bigint,called:string,price:decimal(9,2),at:timestamp>"
        )
        three = avro(registry, name, V3)
        newer = {"id": 3, "called": "", "price": None, "at": AT, "more": 5}
        send(kafka, name, [three(newer)])
        assert values(frame) == [
            {"id": 1, "called": "ä", "price": None, "at": datetime.datetime.fromtimestamp(0, UTC)},
            None,
            {"id": 2**40, "called": "b", "price": Decimal("-0.01"), "at": AT},
            {"id": 3, "called": "", "price": None, "at": AT},
        ]
        assert [r["key"] for r in frame.collect()] == [b"0", b"1", b"0", b"0"]
        # The latest version is another one by now; an older one has other columns.
        latest = sm.from_registry(raw(spark, kafka, name), "avro", client, subject=f"{name}-value")
        assert [v and v["more"] for v in values(latest)] == [1, None, 1, 5]
        first = sm.from_registry(
            raw(spark, kafka, name), "avro", client, subject=f"{name}-value", value_schema=1
        )
        assert first.schema["value"].dataType.simpleString() == (
            "struct<id:int,name:string,gone:boolean>"
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_unreadable_records(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    name = topic()
    write = avro(registry, name, V1)
    good = [write({"id": i, "name": "n", "gone": False}) for i in range(3)]
    bad = [b"", b"\0\0\0", b"plain text", b"\0\0\x0f\x42\x3f\2", good[0][:-1], good[0] + b"\0"]
    send(kafka, name, [good[0], *bad, good[1], None, good[2]])
    settings = {"subject": f"{name}-value", "schema_registry": {"url": registry.url}}
    kept = sm.from_registry(raw(spark, kafka, name), "avro", on_bad_row="keep", **settings)
    rows = kept.toArrow().sort_by("offset").to_pylist()
    assert [r["value"] and r["value"]["id"] for r in rows] == [0, *[None] * 6, 1, None, 2]
    found = [r["unreadable"] for r in rows]
    assert [f and f["value"] for f in found] == [None, *bad, None, None, None]
    reasons = [f["reason"] for f in found if f]
    assert all("does not begin with a zero byte and a schema id" in r for r in reasons[:3])
    assert reasons[3] == "the registry knows no schema of id 999999"
    assert all("Error" in reason for reason in reasons[4:]), reasons
    fails = sm.from_registry(raw(spark, kafka, name), "avro", **settings)
    with pytest.raises(Exception, match=rf"{name}/0 at 1 is not readable as avro: it does not"):
        fails.collect()
    with pytest.raises(ConfigurationError, match="column 'unreadable' already"):
        sm.from_registry(
            raw(spark, kafka, name).selectExpr("value", "1 AS unreadable"), "avro",
            on_bad_row="keep", **settings,
        )  # fmt: skip


def test_json(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    name = topic()
    registry.compatible("NONE")  # a field more may be incompatible in JSON Schema
    client = SchemaRegistryClient({"url": registry.url})
    wide = {"title": "Order", "type": "object", "properties": {
        "id": {"type": "integer"}, "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}}}}  # fmt: skip
    narrow = {**wide, "properties": {"id": {"type": "integer"}}}
    context = SerializationContext(name, MessageField.VALUE)
    writers = [JSONSerializer(json.dumps(one), client) for one in (narrow, wide)]
    good = [writers[0]({"id": 1}, context),
            writers[1]({"id": 2, "price": 0.1, "tags": ["ä"]}, context)]  # fmt: skip
    registry.compatible("BACKWARD")
    send(kafka, name, [*good, good[0][:5] + b'{"id": 1.5}'])
    frame = sm.from_registry(
        raw(spark, kafka, name), "json-schema", {"url": registry.url},
        subject=f"{name}-value", on_bad_row="keep",
    )  # fmt: skip
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,price:double,tags:array<string>>"
    )
    rows = frame.toArrow().sort_by("offset").to_pylist()
    assert [row["value"] for row in rows] == [
        {"id": 1, "price": None, "tags": None}, {"id": 2, "price": 0.1, "tags": ["ä"]}, None,
    ]  # fmt: skip
    assert rows[2]["unreadable"]["reason"] == "ValueError: 1.5 stands for a whole number"


P1 = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Order { int32 id = 1; google.protobuf.Timestamp at = 2; }"""
P2 = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; map<string, uint64> m = 3;
  optional string note = 4; google.protobuf.Duration took = 5;
  enum E { A = 0; B = 1; } E e = 6; }"""


def test_protobuf(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    """By the serializer for Python, which registers descriptors, and by the text of a schema."""
    name = topic()
    registry.compatible("NONE")  # an int64 for an int32 is none to a registry
    client = SchemaRegistryClient({"url": registry.url})
    one, two = (message_factory.GetMessageClass(message_of(SchemaText(text))) for text in (P1, P2))
    context = SerializationContext(name, MessageField.VALUE)
    first = one(id=1)
    first.at.FromDatetime(AT.replace(tzinfo=None))
    good = [ProtobufSerializer(one, client, {"use.deprecated.format": False})(first, context)]
    assert good[0] is not None and good[0][5] == 0
    schema_id = client.register_schema(f"{name}-value", Schema(P2, "PROTOBUF"))
    registry.compatible("BACKWARD")
    later = two(id=2**40, m={"b": 2**64 - 1, "a": 0}, note="", e=1)
    later.took.seconds = 90
    head = b"\0" + schema_id.to_bytes(4, "big")
    good.append(head + b"\0" + later.SerializeToString())
    bad = [head + b"\0\x08", head + b"\x02\x04\x08\x01"]
    send(kafka, name, [good[0], None, *bad, good[1]])
    read = functools.partial(
        sm.from_registry, raw(spark, kafka, name), "protobuf", {"url": registry.url},
        subject=f"{name}-value",
    )  # fmt: skip
    frame = read(on_bad_row="keep")
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,at:timestamp,m:map<string,decimal(20,0)>,note:string,"
        "took:interval day to second,e:string>"
    )
    rows = frame.toArrow().sort_by("offset").to_pylist()
    assert [row["value"] for row in rows] == [
        {"id": 1, "at": AT, "m": [], "note": None, "took": None, "e": "A"}, None, None, None,
        {"id": 2**40, "at": None, "m": [("a", Decimal(0)), ("b", Decimal(2**64 - 1))], "note": "",
         "took": datetime.timedelta(seconds=90), "e": "B"},
    ]  # fmt: skip
    assert [r["unreadable"] and r["unreadable"]["value"] for r in rows] == [None, None, *bad, None]
    with pytest.raises(Exception, match=rf"{name}/0 at 2 is not readable as protobuf: "):
        read().collect()
    with pytest.raises(ConfigurationError, match=r"no Protobuf schema \(x\.proto: File not found"):
        read(value_schema='syntax = "proto3"; import "x.proto"; message M { int32 i = 1; }')


def test_what_the_start_refuses(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    frame = raw(spark, kafka, topic())
    client = {"url": registry.url}
    with pytest.raises(PreflightError, match=r"does not give a version of no-such \(404"):
        sm.from_registry(frame, "avro", client, subject="no-such")
    with pytest.raises(ConfigurationError, match="not one topic; give subject="):
        sm.from_registry(frame, "avro", client)
    with pytest.raises(ConfigurationError, match="no Avro schema"):
        sm.from_registry(frame, "avro", client, value_schema="{}")
    with pytest.raises(ConfigurationError, match="has no bytes in a column 'value'"):
        sm.from_registry(frame.select("key"), "avro", client, value_schema='"string"')
    monkeypatch.setattr("seamark.sources.registry.PATIENCE_S", 0.2)
    away = {"url": "http://127.0.0.1:9", "basic.auth.user.info": "me:s3cr3t-of-me"}
    with pytest.raises(PreflightError, match=r"http://127\.0\.0\.1:9 does not answer") as caught:
        sm.from_registry(frame, "avro", away, subject="x")
    assert "s3cr3t" not in str(caught.value)


def test_a_registry_that_hangs_is_waited_for(
    registry: SchemaRegistryServer, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that refuses connections: see `tests/unit/sources/test_registry.py`."""
    name = topic()
    schema_id = SchemaRegistryClient({"url": registry.url}).register_schema(
        f"{name}-value", Schema(json.dumps(V1), "AVRO")
    )
    reading = Registry({"url": registry.url, "timeout": 0.5, "max.retries": 0}, "orders")
    registry.server.pause()
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(reading.by_id(schema_id)))
    with caplog.at_level(logging.WARNING):
        asking.start()
        try:
            deadline = time.monotonic() + 60
            while "does not answer" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.05)
            assert "waiting" in caplog.text and not found
        finally:
            registry.server.send(signal.SIGCONT)
        asking.join(60)
    assert json.loads(found[0].text) == V1

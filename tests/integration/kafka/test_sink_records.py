"""Records as Spark makes them: the same rows through Spark's own Kafka sink and through ours.

How: a plain DataFrame goes through `df.write.format("kafka")`, and through the sink's own SQL,
Arrow and a real writer; a reader compares the two topics. Avro values are read back with
Confluent's deserializer and a real schema registry. The last test is a whole job.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.contracts.read_back import ReadBack
from seamark.contracts.sink import SinkContext
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import ConfigurationError, PreflightError, WriteRefusedError
from seamark.model.protobuf_schema import message_of
from seamark.model.schema import Column
from seamark.model.schema_registry import SchemaText
from seamark.sinks.kafka import KafkaSink
from seamark.spark.session import require_format, spark_schema, spark_session
from tests.integration.kafka import sink_kit as kit
from tests.servers.schema_registry import SchemaRegistryServer
from tests.storage_servers import serving

Topic = Callable[..., str]
SCHEMA = (
    "key STRING, value STRING, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    session = spark_session("tests")
    require_format(session, "kafka")
    require_format(session, "avro")
    return session


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistryServer]:
    yield from serving(functools.partial(SchemaRegistryServer, tmp_path_factory.mktemp("registry")))


def write(sink: KafkaSink, rows: DataFrame) -> None:
    """Write the rows of a plain DataFrame as a job's task would, and commit them."""
    schema = tuple(Column(name, type_) for name, type_ in spark_schema(rows))
    job = kit.new_job()
    context = SinkContext(job, "orders", kit.UID, 1, 5.0, schema)
    table = rows.selectExpr(*sink.select_expressions(schema)).coalesce(1).toArrow()
    with kit.committing(sink, context, preflight=True) as committer:
        writer = sink.create_writer(kit.attempt(job))
        for batch in table.to_batches():
            writer.write(batch)
        kit.until_proved(committer.commit, writer.prepare_commit())


KEYS = [
    "",
    "a",
    "ab",
    "abc",
    "abcd",
    "Größe",
    "日本語",
    "x" * 255,
    "x" * 257,
    "y" * 4000,
    *map(str, range(50)),
]


@pytest.mark.parametrize("headers", [False, True])
def test_keys_land_where_sparks_own_sink_puts_them(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, headers: bool
) -> None:
    """With headers the general producer writes them, without the fast one. Spark's option
    `includeHeaders` is a reader's: its sink writes them in either case."""
    head = [("h", b"1"), ("h", None), ("", b"")] if headers else None
    rows = [(key, f"v{i}", None, head) for i, key in enumerate(KEYS)]
    rows += [("a", f"p{i}", i % 7, None) for i in range(14)] + [("a", None, None, None)]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    frame = frame if headers else frame.drop("headers")
    sparks, ours = topic(7), topic(7)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": sparks,
               "includeHeaders": "false"}  # fmt: skip
    frame.write.format("kafka").options(**options).save()
    write(kit.sink_on(kafka.bootstrap_servers, ours), frame)

    def by_value(name: str) -> dict[Any, Any]:
        records = kit.records(kafka.bootstrap_servers, name)
        return {m.value(): (m.key(), m.partition(), m.headers() or []) for m in records}

    assert by_value(ours) == by_value(sparks)
    assert len(by_value(ours)) == len(rows)


def test_columns_in_another_case_are_left_out_as_by_sparks_own_sink(
    kafka: LocalKafka, topic: Topic, spark: SparkSession
) -> None:
    sparks, ours = topic(2), topic(2)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": sparks}
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = spark.createDataFrame(
            [("K1", "k1", "V1", "v1", "T1")], "KEY STRING, key STRING, Value STRING, value STRING, "
            "Topic STRING",
        )  # fmt: skip
        frame.write.format("kafka").options(**options).save()
        write(kit.sink_on(kafka.bootstrap_servers, ours), frame)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    for name in (sparks, ours):
        (record,) = kit.records(kafka.bootstrap_servers, name)
        assert (record.key(), record.value()) == (b"k1", b"v1")
    # Where nothing else is the key, Spark's own sink writes a row without one, in any session.
    frame = spark.createDataFrame([("k2", "v2")], "KEY STRING, value STRING")
    frame.write.format("kafka").options(**options).save()
    (other,) = [r for r in kit.records(kafka.bootstrap_servers, sparks) if r.value() == b"v2"]
    assert other.key() is None
    with pytest.raises(ConfigurationError, match="`KEY` is in another case"):
        write(kit.sink_on(kafka.bootstrap_servers, ours), frame)


@pytest.mark.parametrize("to_own", [False, True])
def test_a_topic_is_copied_with_all_columns_as_by_sparks_own_sink(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, to_own: bool
) -> None:
    """The option topic comes before the column; without it each row goes to its column's."""
    source, sparks, ours = topic(3), topic(3), topic(3)
    head = [("h", b"1"), ("h", None)]
    rows = [("a", "1", 2, head), (None, "2", None, None), ("b", "3", 0, None)]
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "includeHeaders": "true"}
    made = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    made.write.format("kafka").options(**servers).option("topic", source).save()
    reader = spark.read.format("kafka").options(**servers).option("subscribe", source)
    frame = reader.load().coalesce(1)
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"
    ]  # fmt: skip

    def own(name: str) -> DataFrame:
        return frame.withColumn("topic", F.lit(name)) if to_own else frame

    option = {} if to_own else {"topic": sparks}
    own(sparks).write.format("kafka").options(**servers, **option).save()
    sink = kit.sink_on(
        kafka.bootstrap_servers, None if to_own else ours, transactional_id_prefix=ours
    )
    write(sink, own(ours))
    copied = {
        name: sorted(
            (m.value(), m.key(), m.partition(), m.headers() or [])
            for m in kit.records(kafka.bootstrap_servers, name)
        )
        for name in (source, sparks, ours)
    }
    assert copied[ours] == copied[sparks] == copied[source]
    assert len(copied[ours]) == 3


def test_each_row_to_its_own_topic(kafka: LocalKafka, topic: Topic, spark: SparkSession) -> None:
    one, two, absent = topic(), topic(), "no-such-topic"
    sink = kit.sink_on(
        kafka.bootstrap_servers, None, transactional_id_prefix=one,
        producer_options={"topic.metadata.propagation.max.ms": 1000},
    )  # fmt: skip
    rows = [(one, "1"), (two, "2"), (one, "3")]
    write(sink, spark.createDataFrame(rows, "topic STRING, value STRING"))
    assert kit.visible(kafka.bootstrap_servers, one) == [1, 3]
    assert kit.visible(kafka.bootstrap_servers, two) == [2]
    with pytest.raises(WriteRefusedError, match=f"'{absent}'.*create the topic"):
        write(sink, spark.createDataFrame([(absent, "4")], "topic STRING, value STRING"))


ORDERS = "id BIGINT, price DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, note STRING"
AT = datetime.datetime(2026, 1, 31, 8, 0, 0, 123456, datetime.timezone.utc)


def orders(spark: SparkSession) -> DataFrame:
    rows = [(1, decimal.Decimal("12.30"), AT, ["a", None], None), (2, None, None, None, 'q"')]
    return spark.createDataFrame(rows, ORDERS)


def test_json_of_columns(kafka: LocalKafka, topic: Topic, spark: SparkSession) -> None:
    name = topic()
    sink = kit.sink_on(kafka.bootstrap_servers, name, key="id", value_format="json")
    write(sink, orders(spark))
    by_key = {m.key(): json.loads(m.value()) for m in kit.records(kafka.bootstrap_servers, name)}
    assert by_key == {
        b"1": {"id": 1, "price": 12.3, "at": "2026-01-31T08:00:00.123456Z", "tags": ["a", None]},
        b"2": {"id": 2, "note": 'q"'},
    }
    name = topic()
    sink = kit.sink_on(
        kafka.bootstrap_servers, name, key=["id", "note"], value=["price"], value_format="json"
    )
    write(sink, orders(spark))
    records = {(m.key(), m.value()) for m in kit.records(kafka.bootstrap_servers, name)}
    assert records == {(b'{"id":1}', b'{"price":12.30}'), (b'{"id":2,"note":"q\\""}', b"{}")}


def deserialized(kafka: LocalKafka, topic: str, url: str) -> list[Any]:
    """Read the values as any consumer does: with Confluent's deserializer."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    read = AvroDeserializer(SchemaRegistryClient({"url": url}))
    context = SerializationContext(topic, MessageField.VALUE)
    values = [read(m.value(), context) for m in kit.records(kafka.bootstrap_servers, topic)]
    return sorted(values, key=lambda value: value["id"])


def test_avro_of_columns(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    name = topic()
    settings = {"value_format": "avro", "schema_registry": {"url": registry.url}}
    sink = kit.sink_on(kafka.bootstrap_servers, name, key="id", **settings)
    write(sink, orders(spark))
    assert deserialized(kafka, name, registry.url) == [
        {"id": 1, "price": decimal.Decimal("12.30"), "at": AT, "tags": ["a", None], "note": None},
        {"id": 2, "price": None, "at": None, "tags": None, "note": 'q"'},
    ]
    # A column more and one less are compatible with the registered schema.
    write(sink, orders(spark).selectExpr("id + 10 AS id", "true AS sold"))
    assert deserialized(kafka, name, registry.url)[2] == {"id": 11, "sold": True}
    # Another type is not, and nothing is written.
    with pytest.raises(PreflightError, match=f"`{kit.UID}`.*{name}-value.*compatib") as caught:
        write(sink, orders(spark).selectExpr("CAST(id AS STRING) AS id"))
    assert registry.url in str(caught.value)
    assert len(deserialized(kafka, name, registry.url)) == 4


ALL_TYPES = {
    "id": ("1", 1),
    "b": ("true", True),
    "t": ("CAST(-3 AS TINYINT)", -3),
    "s": ("CAST(300 AS SMALLINT)", 300),
    "f": ("CAST(0.5 AS FLOAT)", 0.5),
    "d": ("CAST(0.1 AS DOUBLE)", 0.1),
    "x": ("X'00FF'", b"\0\xff"),
    "day": ("DATE'2026-01-31'", datetime.date(2026, 1, 31)),
    "ntz": ("TIMESTAMP_NTZ'2026-01-31 08:00:00.123456'", AT.replace(tzinfo=None)),
    "big": ("CAST('-12345678901234567890.123' AS DECIMAL(38,3))",
            decimal.Decimal("-12345678901234567890.123")),
    "m": ("map('k', CAST(NULL AS INT), 'l', 2)", {"k": None, "l": 2}),
    "n": ("struct(1 AS a, array(struct('z' AS c)) AS l)", {"a": 1, "l": [{"c": "z"}]}),
}  # fmt: skip


def test_avro_of_every_type(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    name = topic()
    sink = kit.sink_on(
        kafka.bootstrap_servers, name, value_format="avro", schema_registry={"url": registry.url}
    )
    columns = [f"{sql} AS {column}" for column, (sql, _) in ALL_TYPES.items()]
    write(sink, spark.range(1).selectExpr(*columns))
    (value,) = deserialized(kafka, name, registry.url)
    assert value == {column: expected for column, (_, expected) in ALL_TYPES.items()}


COLUMNS = {
    **{name: sql for name, (sql, _) in ALL_TYPES.items()},
    "at": "TIMESTAMP'2026-01-31 08:00:00.123456Z'",
    "big": "CAST('-12345678901234567890.123' AS DECIMAL(38,3))",
    "m": "map('k', 1, 'l', 2)",
    "n": "struct(1 AS a, array(struct('z' AS c)) AS l)",
    "nothing": "CAST(NULL AS STRING)",
}


@pytest.mark.parametrize("form", ["protobuf", "json-schema"])
def test_values_by_a_registry_are_read_as_they_were_written(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer, form: str
) -> None:
    """By the source's reader, Confluent's deserializer, and the audit's."""
    name = topic()
    settings: dict[str, Any] = {"value_format": form, "schema_registry": {"url": registry.url}}
    sink = kit.sink_on(kafka.bootstrap_servers, name, key="id", **settings)
    rows = spark.range(1).selectExpr(*(f"{sql} AS {column}" for column, sql in COLUMNS.items()))
    write(sink, rows)
    write(sink, rows)
    one, again = kit.records(kafka.bootstrap_servers, name)
    assert one.value() == again.value() and one.key() == b"1"
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    read = sm.from_registry(
        spark.read.format("kafka").options(**options).load(), form, {"url": registry.url},
        subject=f"{name}-value",
    ).select("value.*")  # fmt: skip
    casts = [
        f"unbase64({column}) AS {column}" if column == "x" and form == "json-schema"
        else f"CAST({column} AS {type_.simpleString()}) AS {column}"
        for column, type_ in ((f.name, f.dataType) for f in rows.schema)
    ]  # fmt: skip
    assert read.selectExpr(*casts).collect() == rows.collect() * 2
    found = _by_confluent(form, registry.url, name, one.value())
    assert (found["id"], found["day"], found["n"]["l"][0]["c"]) == (1, "2026-01-31", "z")
    asked = ReadBack(
        SinkContext(kit.new_job(), "orders", kit.UID, 1, 5.0),
        pa.schema([("key", pa.binary()), ("value", pa.binary())]), (), by_transaction=False,
    )  # fmt: skip
    seen = [found.rows.column("value").to_pylist() for found in sink.read_back(asked)]
    body = one.value()[6 if form == "protobuf" else 5 :]
    assert [value for values in seen for value in values] == [body, body]
    # A column more is compatible; another type for one of them is not, and nothing is written.
    write(sink, rows.selectExpr("*", "true AS sold"))
    with pytest.raises(PreflightError, match=f"`{kit.UID}`.*{name}-value.*compatib"):
        write(sink, rows.withColumn("id", F.expr("CAST(id AS STRING)")))
    if form == "protobuf":
        with pytest.raises(PreflightError, match="the column 'b' would be field 1"):
            write(sink, rows.select("b", "id"))


def _by_confluent(form: str, url: str, topic: str, value: bytes) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf import json_format, message_factory

    context, client = (
        SerializationContext(topic, MessageField.VALUE),
        SchemaRegistryClient({"url": url}),
    )
    text = client.get_version(f"{topic}-value", 1).schema.schema_str
    if form == "json-schema":
        return JSONDeserializer(text, schema_registry_client=client)(value, context)
    message = message_factory.GetMessageClass(message_of(SchemaText(text)))
    found = ProtobufDeserializer(message, {"use.deprecated.format": False})(value, context)
    return json_format.MessageToDict(found, preserving_proto_field_name=True) | {"id": found.id}


def test_a_row_without_a_value_is_a_dead_letter(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Protobuf has no null array, JSON no NaN; a whole job with both."""
    names, bad = {"protobuf": topic(2), "json-schema": topic()}, [topic(), topic()]
    (tmp_path / "in").mkdir()
    lines = [
        json.dumps({"id": i, "tags": None if i == 3 else ["t"] * i, "x": "NaN" if i == 5 else i})
        for i in range(10)
    ]
    (tmp_path / "in/1.json").write_text("\n".join(lines))
    job = sm.Job("letters", sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="100ms"))
    source = sm.FileSource(
        str(tmp_path / "in"), format="json", schema="id BIGINT, tags ARRAY<STRING>, x DOUBLE",
        ending="latest",
    )  # fmt: skip
    rows, servers = job.source(source, "in"), kafka.bootstrap_servers
    for (form, name), aside in zip(names.items(), bad, strict=True):
        settings = {"value_format": form, "schema_registry": {"url": registry.url}}
        job.sink(
            rows, kit.sink_on(servers, name, key="id", **settings), form,
            on_bad_row="dead_letter",
            dead_letters=kit.sink_on(servers, aside),
        )  # fmt: skip
    job.run()
    for form, refused in (("protobuf", 3), ("json-schema", 5)):
        found = {int(m.key()) for m in kit.records(servers, names[form])}
        assert found == set(range(10)) - {refused}
    records = [m for aside in bad for m in kit.records(servers, aside)]
    letters = {m.key(): json.loads(m.value()) for m in records}
    assert len(records) == 2 and letters.keys() == {b"protobuf", b"json-schema"}
    assert "`tags` is null" in letters[b"protobuf"]["reason"]
    assert "`x` is NaN" in letters[b"json-schema"]["reason"]


GIVEN = json.dumps({
    "type": "record", "name": "Order", "namespace": "shop", "doc": "it's \\ theirs", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "later", "type": ["null", "int"], "default": None},
    ],
})  # fmt: skip


def test_a_schema_of_ones_own(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer
) -> None:
    name = topic()
    sink = kit.sink_on(
        kafka.bootstrap_servers, name, value=["id", "note"], value_format="avro",
        value_schema=GIVEN, schema_registry={"url": registry.url},
    )  # fmt: skip
    write(sink, orders(spark))
    assert deserialized(kafka, name, registry.url) == [
        {"id": 1, "note": None, "later": None}, {"id": 2, "note": 'q"', "later": None},
    ]  # fmt: skip


def test_a_registry_that_is_not_there(kafka: LocalKafka, topic: Topic, spark: SparkSession) -> None:
    secret = "me:s3cr3t-of-me"
    settings = {"url": "http://127.0.0.1:9", "basic.auth.user.info": secret}
    sink = kit.sink_on(
        kafka.bootstrap_servers, topic(), value_format="avro", schema_registry=settings
    )
    with pytest.raises(PreflightError, match=r"registry at http://127\.0\.0\.1:9 does not answer"):
        write(sink, orders(spark))


def test_a_whole_job(
    kafka: LocalKafka, topic: Topic, spark: SparkSession, registry: SchemaRegistryServer,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Two sinks in one job: Avro values, and rows with headers and topics of their own."""
    avro, one, two = topic(3), topic(), topic()
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"id": i, "name": f"n{i}"}) for i in range(20)]
    (tmp_path / "in/1.json").write_text("\n".join(lines))
    job = sm.Job("extras", sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="100ms"))
    source = sm.FileSource(
        str(tmp_path / "in"), format="json", schema="id BIGINT, name STRING", ending="latest"
    )
    rows = job.source(source, "in")
    servers = kafka.bootstrap_servers
    job.sink(
        rows,
        kit.sink_on(servers, avro, key="id", value_format="avro",
                    schema_registry={"url": registry.url}),
        "avro",
    )  # fmt: skip
    routed = rows.selectExpr(
        "CAST(id AS STRING) AS value",
        f"IF(id % 2 = 0, '{one}', '{two}') AS topic",
        "array(named_struct('key', 'name', 'value', CAST(name AS BINARY))) AS headers",
    )
    job.sink(routed, kit.sink_on(servers, None, transactional_id_prefix=one), "routed")
    job.run()
    assert deserialized(kafka, avro, registry.url) == [
        {"id": i, "name": f"n{i}"} for i in range(20)
    ]
    assert {int(m.key()) for m in kit.records(servers, avro)} == set(range(20))
    for name, remainder in ((one, 0), (two, 1)):
        records = kit.records(servers, name)
        assert sorted(int(m.value()) for m in records) == list(range(remainder, 20, 2))
        assert all(m.headers() == [("name", b"n" + m.value())] for m in records)

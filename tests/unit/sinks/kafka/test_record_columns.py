"""The columns for each part of a record, as SQL, and every refused DataFrame.

No Spark: the SQL's effect is in `tests/integration/kafka/test_sink_records.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, Schema
from seamark.sinks.internal.columns import to_json
from seamark.sinks.kafka import KafkaSink

HEADERS = Column("headers", "array<struct<key:string,value:binary>>")
VALUE, PARTITION, TOPIC = (
    Column("value", "string"), Column("partition", "int"), Column("topic", "string"),
)  # fmt: skip
ID, AMOUNT, KEY = Column("id", "bigint"), Column("amount", "double"), Column("key", "string")
NO_KEY = "CAST(NULL AS BINARY) AS key"
AVRO = {"value_format": "avro", "schema_registry": {"url": "http://host"}}


def sink(**changes: Any) -> KafkaSink:
    return KafkaSink(
        "localhost:9092",
        **{"topic": "orders", "transactional_id_prefix": "shop", **changes},
    )


def json(*names: str) -> str:
    return f"CAST({to_json(f'''struct({', '.join(f'`{name}`' for name in names)})''')} AS BINARY)"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ((VALUE,), [NO_KEY, "CAST(`value` AS BINARY) AS value"]),
        (
            (Column("value", "binary"), KEY),
            ["CAST(`key` AS BINARY) AS key", "CAST(`value` AS BINARY) AS value"],
        ),
        (
            (HEADERS, PARTITION, VALUE, Column("key", "binary")),
            [
                "CAST(`key` AS BINARY) AS key", "CAST(`value` AS BINARY) AS value",
                "`partition` AS partition", "`headers` AS headers",
            ],
        ),
        (
            (VALUE, Column("key", "void")),
            ["CAST(`key` AS BINARY) AS key", "CAST(`value` AS BINARY) AS value"],
        ),
        # A row as Spark's own source gives it; the topic of the sink comes before the row's.
        (
            (Column("key", "binary"), VALUE, TOPIC, PARTITION, Column("offset", "bigint"),
             Column("timestamp", "timestamp"), Column("timestampType", "int"), HEADERS),
            [
                "CAST(`key` AS BINARY) AS key", "CAST(`value` AS BINARY) AS value",
                "`partition` AS partition", "`headers` AS headers",
            ],
        ),
        ((VALUE, ID, Column("ID", "int")), [NO_KEY, "CAST(`value` AS BINARY) AS value"]),
        # Names count with their case, as in Spark's own sink.
        ((Column("VALUE", "int"), VALUE), [NO_KEY, "CAST(`value` AS BINARY) AS value"]),
        (
            (Column("KEY", "int"), VALUE, KEY, Column("Topic", "int")),
            ["CAST(`key` AS BINARY) AS key", "CAST(`value` AS BINARY) AS value"],
        ),
    ],
)  # fmt: skip
def test_the_columns_of_sparks_own_sink(schema: Schema, expected: list[str]) -> None:
    assert list(sink().select_expressions(schema)) == expected


def test_each_rows_own_topic() -> None:
    assert sink(topic=None).select_expressions((VALUE, TOPIC))[2] == "`topic` AS topic"


@pytest.mark.parametrize(
    ("settings", "schema", "key", "value"),
    [
        ({"key": "id", "value": "body"}, (ID, Column("body", "binary")),
         "CAST(CAST(`id` AS STRING) AS BINARY)", "CAST(`body` AS BINARY)"),
        ({"value_format": "json"}, (ID, AMOUNT), "CAST(NULL AS BINARY)", json("id", "amount")),
        # A column `key` is the key and no data, until key= names another one.
        ({"value_format": "json"}, (ID, KEY), "CAST(`key` AS BINARY)", json("id")),
        ({"value_format": "json", "key": "ID"}, (ID, KEY),
         "CAST(CAST(`id` AS STRING) AS BINARY)", json("id", "key")),
        ({"value_format": "json", "key": "key"}, (ID, KEY),
         "CAST(`key` AS BINARY)", json("id", "key")),
        ({"value_format": "json", "key": ["id", "key"], "value": "amount"}, (ID, AMOUNT, KEY),
         json("id", "key"), json("amount")),
        # Named in value=, a column of a name with a meaning is data.
        ({"value_format": "json", "value": ["topic", "partition"]}, (TOPIC, PARTITION, ID),
         "CAST(NULL AS BINARY)", json("topic", "partition")),
    ],
)  # fmt: skip
def test_key_and_value_of_columns(
    settings: dict[str, Any], schema: Schema, key: str, value: str
) -> None:
    found = list(sink(**settings).select_expressions(schema))
    assert found == [f"{key} AS key", f"{value} AS value"]


def test_routing_columns_are_no_data() -> None:
    found = sink(value_format="json").select_expressions((ID, PARTITION, HEADERS))
    assert found[1:] == [f"{json('id')} AS value", "`partition` AS partition",
                         "`headers` AS headers"]  # fmt: skip


def test_avro_is_made_by_spark_from_a_schema_of_the_columns() -> None:
    avro = sink(**AVRO)
    assert avro.spark_formats == ("avro",)
    found = avro.select_expressions((KEY, ID))[1]
    assert found == (
        'to_avro(struct(`id`), \'{"type": "record", "name": "orders_value", "fields": '
        '[{"name": "id", "type": ["null", "long"], "default": null}]}\') AS value'
    )
    assert sink(value_format="json").spark_formats == ()


@pytest.mark.parametrize(
    ("settings", "schema", "parts"),
    [
        ({}, (KEY,), ["`value` is missing", 'value_format="json"']),
        ({}, (), ["`value` is missing"]),
        ({}, (Column("value", "bigint"),), ["`value`", "bigint", "string or binary"]),
        ({}, (VALUE, Column("key", "int")), ["`key`", "int", "binary"]),
        ({}, (VALUE, Column("partition", "bigint")), ["`partition`", "bigint"]),
        ({}, (VALUE, Column("headers", "map<string,string>")), ["`headers`", "array<struct<key"]),
        ({}, (VALUE, Column("headers", "array<struct<key:string,value:string>>")), ["`headers`"]),
        ({}, (Column("Value", "string"), Column("VALUE", "string")), ["case", "`Value`"]),
        ({}, (VALUE, Column("KEY", "binary")), ["`KEY` is in another case", "rename it to `key`"]),
        ({"topic": None}, (VALUE, Column("Topic", "string")), ["`Topic`", "rename it to `topic`"]),
        ({"key": "a"}, (VALUE, Column("a", "int"), Column("A", "int")), ["case only", "drop one"]),
        ({}, (VALUE, VALUE), ["two columns are `value`", "drop one"]),
        ({}, (KEY, VALUE, KEY), ["two columns are `key`", "Spark's own sink"]),
        ({"topic": None}, (VALUE,), ["`topic` is missing because the sink has no topic="]),
        ({"topic": None}, (VALUE, Column("topic", "int")), ["`topic`", "int", "string"]),
        ({"key": "nr"}, (VALUE, ID), ["key= names the column 'nr'", "value, id"]),
        ({"key": "amount"}, (VALUE, AMOUNT), ["key='amount'", "double", "bigint"]),
        ({"key": "id"}, (VALUE, ID, KEY), ["`key`", "none of those"]),
        ({"value_format": "json", "value": ["nr"]}, (ID,), ["value= names the column 'nr'", "id"]),
        ({"value_format": "json"}, (ID, TOPIC), ["topic='orders'", "name it in value="]),
        ({"value_format": "json"}, (KEY,), ["value", "no columns"]),
        ({"value_format": "json"}, (ID, Column("key", "int")), ["`key`", "value=[..., 'key']"]),
        ({"value_format": "json"}, (Column("v", "variant"),), ["'v'", "variant"]),
        ({"topic": None, "value_format": "json"}, (ID,), ["`topic` is missing"]),
        (AVRO, (Column("a b", "int"),), ["'a b'", "withColumnRenamed"]),
        (AVRO, (Column("m", "map<int,string>"),), ["'m'", "map<int,string>", "string"]),
        (AVRO, (Column("s", "struct<x:array<interval day>>"),), ["'s'", "interval day"]),
    ],
)
def test_what_a_sink_cannot_take(
    settings: dict[str, Any], schema: Schema, parts: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sink(**settings).select_expressions(schema)
    for part in ["KafkaSink", *parts]:
        assert part in str(caught.value)

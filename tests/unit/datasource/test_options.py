"""Sinks as options and back, and the one line that a wrong option gives."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import pytest

import seamark as sm
from seamark.datasource.location import Location
from seamark.datasource.options import (
    _CLASSES,
    _load,
    public_options,
    sink_of_options,
    sink_options,
)

SINKS = [
    sm.KafkaSink("k:9092", topic="orders", transactional_id_prefix="shop", key=["a", "b"]),
    sm.KafkaSink(
        "k:9092", topic="t", transactional_id_prefix="p", producer_options={"linger.ms": 5},
        value_format="json",
    ),
    sm.SQLiteSink("/data/x.db", table="t", keys=["id", "odd, name"], op="op"),
    sm.PostgresSink("postgresql://u:p@h/db", "t", mode="upsert", keys=["id"], timeout="5s"),
    sm.MySQLSink("mysql://u:p@h/db", "t", mode="staged", create_table=True),
    sm.SqlSink("sqlite:////data/x.db", "t", mode="upsert", keys=["id"], timeout="5s"),
    sm.FileSink("/data/out", "csv", partition_by=["day"], header=False, delimiter=";"),
    sm.FileSink("s3a://b/out", hadoop={"fs.s3a.endpoint": "http://h"}),
    sm.DeltaSink("/data/d", partition_by=["day"], create_table=True, keys=["id"]),
    sm.IcebergSink("a.b", {"type": "rest", "uri": "http://h"}, partition_by=["bucket(4, id)"]),
    sm.IcebergSink("a.b", {"type": "rest"}, mode="upsert", keys=["id", "odd, name"], op="op"),
    sm.RedisSink("redis://h:6379/0", key="k", ttl="1 h", replicas=1),
    sm.WriteAheadSink.http("https://h/in", headers={"Authorization": "x"}, idempotent=True),
]  # fmt: skip


@pytest.mark.parametrize("sink", SINKS, ids=lambda sink: sink.describe())
def test_a_sink_comes_back_from_its_options(sink: Any) -> None:
    options = sink_options(sink)
    assert all(isinstance(text, str) for pair in options.items() for text in pair)
    lowered = {name.lower(): text for name, text in options.items()}  # as Spark gives them
    back = sink_of_options({**lowered, "checkpointlocation": "/c/q"})
    assert type(back) is type(sink)
    for field in fields(sink):
        if field.init and field.compare:
            assert getattr(back, field.name) == getattr(sink, field.name), field.name


def test_spark_s_own_names_of_kafka_and_formats() -> None:
    given = {"sink": "kafka", "kafka.bootstrap.servers": "h:1", "topic": "t",
             "includeheaders": "true",  # of a reader, as for Spark's own sink
             "kafka.security.protocol": "SSL", "checkpointlocation": "file:/c/orders"}  # fmt: skip
    sink: Any = sink_of_options(given)
    assert sink.bootstrap_servers == "h:1"
    assert sink.producer_options["security.protocol"] == "SSL"
    assert sink.transactional_id_prefix.startswith("orders-")
    again: Any = sink_of_options(given)
    assert again.transactional_id_prefix == sink.transactional_id_prefix
    parquet: Any = sink_of_options(
        {"sink": "parquet", "path": "/out", "checkpointlocation": "/c/q"}
    )
    assert (parquet.path, parquet.format) == ("/out", "parquet")
    by_day: Any = sink_of_options(
        {"sink": "json", "path": "/out", "partition_by": "day, hour", "checkpointlocation": "/c/q"}
    )
    assert tuple(by_day.partition_by) == ("day", "hour")
    jdbc: Any = sink_of_options(
        {"sink": "jdbc", "url": "jdbc:postgresql://h/db", "dbtable": "Orders", "user": "u"}
    )
    assert jdbc.table == "orders"


def test_a_setting_of_its_own_counts_beside_a_json_object() -> None:
    """In whatever order Spark gives them."""
    given = {"sink": "kafka", "kafka.bootstrap.servers": "h:1", "topic": "t",
             "kafka.linger.ms": "5",
             "producer_options": '{"acks": "all", "linger.ms": "1"}'}  # fmt: skip
    for options in (given, dict(reversed(given.items()))):
        sink: Any = sink_of_options({**options, "checkpointlocation": "/c/q"})
        assert sink.producer_options == {"acks": "all", "linger.ms": "5"}


@dataclass(frozen=True)
class QueueSink(sm.SQLiteSink):
    """A sink of a user's own."""

    depth: int = 1
    batchSize: int = 10  # noqa: N815


def test_a_sink_of_ones_own() -> None:
    options = sink_options(QueueSink("/x.db", table="t", depth=7, batchSize=8))
    assert options["sink"] == f"{__name__}:QueueSink"
    back: Any = sink_of_options({name.lower(): text for name, text in options.items()})
    assert (type(back), back.depth, back.batchSize) == (QueueSink, 7, 8)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs the option 'sink'"),
        ({"sink": "oracle"}, "the option sink is 'oracle'; give one of kafka, postgres"),
        ({"sink": "kafak"}, "did you mean 'kafka'?"),
        ({"sink": "sqlite", "path": "/x.db", "table": "t", "locaton": "/l"}, "mean 'location'?"),
        ({"sink": "sqlite", "path": "/x.db", "table": "t", "adopt": "1"}, 'give "true" or "false"'),
        ({"sink": "parquet"}, "sink 'parquet' needs the option 'path'"),
        ({"sink": "parquet", "path": "/x", "pathh": "/x"}, "did you mean 'path'?"),
        ({"sink": "jdbc", "url": "jdbc:oracle:thin:@h", "dbtable": "t"}, "the sink 'sql'"),
        ({"sink": "no_module:Sink"}, "cannot be imported where Spark runs"),
        ({"sink": ":"}, "cannot be imported where Spark runs"),
        ({"sink": "json:JSONDecoder"}, "which is no dataclass"),
        (
            {"sink": "sqlite", "path": "/x.db", "table": "t", "keys": '{"id": 1}'},
            "keys is {'id': 1}; give a list of column names",
        ),
        (
            {
                "sink": "kafka",
                "bootstrap_servers": "a:1",
                "kafka.bootstrap.servers": "b:1",
                "topic": "t",
            },
            "bootstrap_servers and kafka.bootstrap.servers differ; give one of them",
        ),
        ({"sink": "sqlite", "path": "/x.db"}, "needs the option 'table'"),
        ({"sink": "sqlite", "path": "/x.db", "tabel": "t"}, "did you mean 'table'?"),
        ({"sink": "delta", "path": "/d", "create_table": "yes"}, "give true or false"),
        ({"sink": "sqlite", "path": "x.db", "table": "t"}, "give an absolute path"),
        ({"sink": "json", "path": "out"}, "give an absolute path"),
        ({"sink": "json", "path": "file:out"}, "give an absolute path"),
        ({"sink": "json", "path": "2026:11/out"}, "give an absolute path"),
        ({"sink": "json", "path": "~/out"}, "give an absolute path"),
        (
            {
                "sink": "kafka",
                "kafka.bootstrap.servers": "a:1",
                "kafka.linger.ms": "5",
                "producer_options": '["acks"]',
                "topic": "t",
            },
            "the option 'producer_options' cannot be read; give a JSON object",
        ),
        (
            {
                "sink": "kafka",
                "bootstrap_servers": "b:1",
                "topic": "t",
                "value_format": "avro",
                "schema_registry": "http://r",
            },
            "cannot register its schema",
        ),
        ({"sink": "redis", "url": "redis://h", "key": "k", "replicas": "two"}, "give a number"),
    ],
)
def test_a_wrong_option_is_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(sm.ConfigurationError) as error:
        sink_of_options(options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "write_stream:" not in str(error.value), "which its program has not called"


def test_spark_s_own_name_of_the_partition_columns() -> None:
    given = {"sink": "parquet", "path": "/x", "partitionBy": "day,hour"}
    assert sink_of_options(given) == sm.FileSink("/x", partition_by=["day", "hour"])


NEEDED = {
    "kafka": {"kafka.bootstrap.servers": "h:1", "topic": "t"},
    "postgres": {"url": "postgresql://u:p@h/db", "table": "t"},
    "mysql": {"url": "mysql://u:p@h/db", "table": "t"},
    "sql": {"url": "sqlite:////data/x.db", "table": "t"},
    "sqlite": {"path": "/x.db", "table": "t"},
    "files": {"path": "/x"},
    "delta": {"path": "/x"},
    "iceberg": {"table": "a.b"},
    "redis": {"url": "redis://h", "key": "k"},
    "http": {"url": "http://h"},
    "parquet": {"path": "/x"},
    "csv": {"path": "/x"},
    "jdbc": {"url": "jdbc:postgresql://h/db", "dbtable": "t", "user": "u"},
}
OPTIONS = {
    "sqlite": ["sink", "location", "adopt", "selected", "checkpointLocation", "queryName"],
    "kafka": ["kafka.bootstrap.servers"],
    "parquet": ["path", "compression", "target_file_size", "partition_by"],
    "csv": ["path", "header", "sep", "delimiter", "nullValue", "null_value"],
    "jdbc": ["url", "dbtable", "user", "password", "mode", "keys", "create_table", "spool"],
}
EVERY = [(sink, option) for sink, some in OPTIONS.items() for option in some] + [
    (sink, field.name) for sink in _CLASSES for field in fields(_load(_CLASSES[sink])) if field.init
]
SAY_SOMETHING_EMPTY = {
    ("csv", "nullValue"), ("csv", "null_value"), ("files", "null_value"), ("jdbc", "password"),
    ("redis", "key_prefix"),
}  # fmt: skip


@pytest.mark.parametrize(("sink", "option"), EVERY)
def test_an_option_given_empty_is_not_one_left_out(sink: str, option: str) -> None:
    query = {"sink": sink, "checkpointlocation": "/c/q", **NEEDED[sink]}
    Location(query)
    given = {**query, option.lower(): ""}
    if (sink, option) in SAY_SOMETHING_EMPTY:
        Location(given)
        return
    said = f"(?i){option.removeprefix('kafka.')}"
    with pytest.raises(sm.ConfigurationError, match=said) as error:
        Location(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("option", ["location", "checkpointLocation"])
@pytest.mark.parametrize("path", ["log", "~/log", "file:log", "FILE:log", "2026:11/log"])
def test_a_location_is_absolute(option: str, path: str) -> None:
    query = {"sink": "sqlite", "path": "/x.db", "table": "t", option.lower(): path}
    with pytest.raises(sm.ConfigurationError, match=f"option {option} is '{path}'; give an abs"):
        Location(query)


@pytest.mark.parametrize("option", ["adopt", "selected"])
def test_a_flag_of_the_query_is_true_or_false(option: str) -> None:
    query = {"sink": "sqlite", "path": "/x.db", "table": "t", "location": "/c/q"}
    with pytest.raises(sm.ConfigurationError, match=f"option '{option}' is 'yes'"):
        Location({**query, option: "yes"})


def test_what_no_option_can_say() -> None:
    def send(rows: Any, token: Any) -> None: ...

    with pytest.raises(sm.ConfigurationError, match=r"no option can say|no dataclass"):
        sink_options(sm.WriteAheadSink.foreach_batch(send))
    with pytest.raises(sm.ConfigurationError, match="sink is the class SQLiteSink; make one: SQL"):
        sink_options(sm.SQLiteSink)  # type: ignore[arg-type]
    for other in "kafka", sm.KafkaSource("k:9092", topics="t"):
        with pytest.raises(sm.ConfigurationError, match=r"sink is (str|KafkaSource); give a sm.…S"):
            sink_options(other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "hidden"),
    [
        ({"sink": "postgres", "url": "postgresql://app:pw@db/shop", "table": "t"}, {"url"}),
        ({"sink": "postgres", "url": "postgresql://db/shop", "table": "t"}, set()),
        (
            {
                "sink": "kafka",
                "bootstrap_servers": "b:1",
                "topic": "t",
                "kafka.sasl.username": "app",
                "kafka.sasl.password": "short",
            },
            {"kafka.sasl.password"},
        ),
        (
            {"sink": "http", "url": "http://h", "headers": '{"X-Anything": "at all"}'},
            {"headers"},
        ),
        (
            {"sink": "files", "path": "s3a://b/x", "format": "json", "fs.s3a.access.key": "A"},
            {"fs.s3a.access.key"},
        ),
        (
            {"sink": "http", "url": "http://h", "headers": json.dumps({"X-Key": 'id="pä ss"'})},
            {"headers"},
        ),
        (
            {"sink": "iceberg", "table": "a.b", "catalog.header.x-foo": "at all"},
            {"catalog.header.x-foo"},
        ),
        (
            {"sink": "iceberg", "table": "a.b", "catalog": '{"header.X-Foo": "at all"}'},
            {"catalog"},
        ),
        (
            {
                "sink": "sql",
                "url": "mssql+pyodbc:///?odbc_connect=UID%3Dsa%3BPWD%3Da%2540b",
                "table": "t",
            },
            {"url"},
        ),
        (
            {"sink": "files", "path": "s3a://b/x", "fs.s3a.encryption.key": "A"},
            {"fs.s3a.encryption.key"},
        ),
        ({"sink": "json", "path": "/x", "password": ""}, {"password"}),
        (
            {
                "sink": "sqlite",
                "path": "/shop.db",
                "table": "t",
                "location": "s3a://shop/x",
                "fs.s3a.secret.key": "shop",
            },
            {"path", "fs.s3a.secret.key"},
        ),
    ],
)
def test_a_location_keeps_no_option_with_a_secret(
    options: dict[str, str], hidden: set[str]
) -> None:
    sink = sink_of_options({k: v for k, v in options.items() if k != "password"})
    kept = public_options(options, sink)
    assert {name for name, text in kept.items() if text == "***"} == hidden
    assert {name: options[name] for name in options.keys() - hidden}.items() <= kept.items()


@dataclass(frozen=True)
class PlacedSink(sm.SQLiteSink):
    """Has a parameter that is an option of the query's."""

    location: str = "/data/shelf"


def test_a_parameter_named_as_an_option_of_the_query_is_refused() -> None:
    words = r"PlacedSink has the parameter 'location', which is an option of the query; rename it"
    with pytest.raises(sm.ConfigurationError, match=words):
        sink_options(PlacedSink("/data/x.db", "t", location="/data/other"))
    given = {"sink": f"{__name__}:PlacedSink", "path": "/data/x.db", "table": "t"}
    with pytest.raises(sm.ConfigurationError, match=words):
        sink_of_options({**given, "location": "/logs/q"})

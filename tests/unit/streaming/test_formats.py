"""Formats and options become sinks; what is not known is refused by its name, without a secret."""

from __future__ import annotations

from typing import Any

import pytest

import seamark as sm
from seamark.model.errors import ConfigurationError
from seamark.streaming.formats import sink_of
from seamark.streaming.job import Place

PLACE = Place("file:///var/lib/checkpoints/etl", "clicks")


def made(format_: str, by: tuple[str, ...] = (), **given: str) -> Any:
    names = {name.replace("__", "."): value for name, value in given.items()}
    return sink_of(format_, names, by, PLACE)


def test_kafka_takes_the_options_of_sparks_own_sink() -> None:
    sink = made(
        "kafka",
        kafka__bootstrap__servers="one:9092,two:9092",
        topic="out",
        includeHeaders="false",
        kafka__compression__type="zstd",
        kafka__security__protocol="SASL_SSL",
    )
    assert (sink.bootstrap_servers, sink.topic) == ("one:9092,two:9092", "out")
    assert sink.producer_options == {"compression.type": "zstd", "security.protocol": "SASL_SSL"}
    assert sink.transactional_id_prefix.startswith("clicks-")
    elsewhere = Place("file:///var/lib/checkpoints/other", "clicks")
    servers = {"kafka.bootstrap.servers": "one:9092", "topic": "out"}
    other = sink_of("kafka", servers, (), elsewhere)
    assert other.transactional_id_prefix != sink.transactional_id_prefix


def test_the_names_of_options_have_no_case() -> None:
    given = {"KAFKA__Bootstrap__Servers": "one:9092", "TOPIC": "out", "Kafka__Linger__MS": "7"}
    sink = made("KAFKA", **given)
    assert (sink.topic, sink.producer_options) == ("out", {"linger.ms": "7"})


def test_files_take_sparks_options_and_its_defaults() -> None:
    csv = made("csv", by=("day",), path="/data/out", sep=";", compression="uncompressed")
    assert (csv.header, csv.delimiter, csv.compression) == (False, ";", "none")
    for spelled, known in (
        ("SNAPPY", "snappy"),
        ("Zstd", "zstd"),
        ("LZ4_RAW", "lz4"),
        ("NONE", "none"),
    ):
        assert made("parquet", path="/data/out", compression=spelled).compression == known
    assert (csv.escape, made("csv", path="/data/out", escape='"').escape) == ("\\", '"')
    assert csv.partition_by == ("day",)
    assert made("csv", path="/data/out", header="true").header is True


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://db:5432/shop?sslmode=verify-full", sm.PostgresSink),
        ("jdbc:mysql://db:3306/shop", sm.MySQLSink),
        ("jdbc:mariadb://db:3306/shop", sm.MySQLSink),
    ],
)
def test_jdbc_makes_the_databases_own_sink(url: str, shown: type) -> None:
    login = {"user": "etl", "password": "p@ss/word", "driver": "any.Driver"}
    sink = made("jdbc", url=url, dbtable="clicks", **login)
    assert isinstance(sink, shown)
    assert (sink.table, sink.mode, sink.create_table) == ("clicks", "staged", True)
    assert "etl:p%40ss%2Fword@db:" in sink.url
    assert made("jdbc", url=url, dbtable="t", keys="id", user="u").mode == "upsert"


@pytest.mark.parametrize(
    ("url", "made_of_it"),
    [
        (
            "postgresql://db/shop?ApplicationName=my+job&reWriteBatchedInserts=true"
            "&stringtype=unspecified&connectTimeout=5",
            "postgresql://db/shop?application_name=my%20job",
        ),
        ("postgresql://db/shop?ssl=true", "postgresql://db/shop?sslmode=verify-full"),
        ("postgresql://db/s?ssl=true&sslmode=require", "postgresql://db/s?sslmode=require"),
        ("postgresql://db/s?ssl=false&tcpKeepAlive=true", "postgresql://db/s"),
        (
            "mysql://db/s?useSSL=false&allowPublicKeyRetrieval=true&rewriteBatchedStatements=true"
            "&useUnicode=true&characterEncoding=UTF-8",
            "mysql://u@db/s",
        ),
    ],
)
def test_properties_of_javas_drivers_that_change_no_row(url: str, made_of_it: str) -> None:
    login = {"user": "u"} if url.startswith("mysql") else {}
    assert made("jdbc", url=f"jdbc:{url}", dbtable="t", **login).url == made_of_it
    assert made("jdbc", url="jdbc:postgresql://db/s", dbtable="t", stringtype="unspecified")


@pytest.mark.parametrize("name", ["serverTimezone=CET", "useSSL=true", "sessionVariables=a=1"])
def test_those_that_could_change_one_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name.partition("=")[0]):
        made("jdbc", url=f"jdbc:mysql://db/s?{name}", dbtable="t", user="u")


def test_tables_of_files_are_changed_by_key() -> None:
    delta = made("delta", path="/d", keys="id, part", op="op")
    assert (delta.keys, delta.op) == (("id", "part"), "op")
    assert made("delta", path="/d").keys == ()
    iceberg = made("iceberg", path="shop.t", keys="id")
    assert (iceberg.mode, iceberg.keys, iceberg.op) == ("upsert", ("id",), None)
    assert made("iceberg", path="shop.t").mode == "append"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"format_": "console", "numRows": "some"}, "numRows is 'some'; give a whole number"),
        ({"format_": "console", "numRows": ""}, "option 'numRows' is empty"),
        ({"format_": "iceberg", "path": "a.b", "catalog_name": ""}, "'catalog_name' is empty"),
        ({"format_": "delta", "path": "/d", "keys": " , "}, "option 'keys' is ' , '"),
        ({"format_": "console", "truncat": "true"}, "did you mean 'truncate'"),
        ({"format_": "mongodb"}, r"sm.WriteAheadSink.spark_format\('mongodb'"),
        ({"format_": "kafka", "topic": "out"}, "needs the option 'kafka.bootstrap.servers'"),
        ({"format_": "parquet", "path": "/d", "compresion": "gzip"}, "did you mean 'compression'"),
        ({"format_": "kafka", "by": ("day",)}, r"partitionBy is \['day'\]"),
        ({"format_": "jdbc", "url": "jdbc:oracle:thin:@db", "dbtable": "t"}, "jdbc:postgresql"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_with_the_remedy(arguments: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        made(**arguments)


def test_no_error_shows_a_value_of_an_option() -> None:
    with pytest.raises(ConfigurationError) as error:
        made("parquet", path="/d", fs="hunter2", my__password="hunter2")
    assert "hunter2" not in str(error.value)
    with pytest.raises(ConfigurationError) as error:
        made("jdbc", url="jdbc:postgresql://db/s?serverTimezone=CET&password=hunter2", dbtable="t")
    assert "hunter2" not in str(error.value)


def test_a_location_needs_a_directory_above_it() -> None:
    with pytest.raises(ConfigurationError, match="lies in no directory"):
        Place("file:///checkpoint")
    assert Place("s3a://bucket/etl").storage == "s3a://bucket"
    assert Place("file:///a/b").name == "b"

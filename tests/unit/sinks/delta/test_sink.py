"""DeltaSink's configuration and types, without a table: the refusals when a job is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seamark.files import HadoopSettings
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column
from seamark.sinks.delta import DeltaSink, types
from seamark.sinks.delta.store import delta_options


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/orders", "/data/orders"),
        (Path("/data/orders"), "/data/orders"),
        ("file:///data/a table", "/data/a table"),
        ("s3://bucket/orders/", "s3://bucket/orders"),
        ("s3a://bucket/a/b", "s3a://bucket/a/b"),
        ("gs://bucket/a/b/", "gs://bucket/a/b"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
        ("hdfs://name:8020/a/b/", "hdfs://name:8020/a/b"),
    ],
)
def test_a_path_is_local_or_on_hdfs_or_s3(given: Any, path: str) -> None:
    assert DeltaSink(given).path == path


@pytest.mark.parametrize(
    "path", ["", "s3://bucket", "s3a://", "hdfs:///orders", "gs://b", "az://b/t", None]
)
def test_other_paths_are_refused(path: Any) -> None:
    with pytest.raises(ConfigurationError, match="DeltaSink: path"):
        DeltaSink(path)


@pytest.mark.parametrize(
    "path",
    [
        "/a%41b",
        "/a[1]",
        "/a^b",
        "/a|b",
        "/a\\b",
        "s3a://b/a#1",
        "s3://b/a?",
        "gs://b/a#1",
        "hdfs://n/a b",
        "hdfs://n/é",
    ],
)
def test_paths_that_delta_rs_takes_for_others_are_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"delta-rs takes '.+' in it for something else"):
        DeltaSink(path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"partition_by": "day"}, "give a list of column names"),
        ({"partition_by": [""]}, "give a list of column names"),
        ({"partition_by": ["day", "day"]}, "twice"),
        ({"storage_options": {"AWS_REGION": 1}}, "give a dict of texts"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        DeltaSink("/data/orders", **settings)


def test_columns_that_no_table_takes_are_refused() -> None:
    day, number = Column("day", "date"), Column("n", "double")
    for partition_by, schema, words in (
        (["other"], (day, number), "'other' is not in the DataFrame"),
        (["n"], (day, number), "partition column 'n' is double; allowed are string"),
        (["n"], (day, number), "CAST\\(`n` AS STRING"),
        (["day"], (day,), "every column is a partition column"),
        ([], (day, Column("i", "interval day")), "type interval day, which it cannot store"),
        ([], (day, Column("DAY", "int")), "differ in case alone"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            DeltaSink("/data/orders", partition_by).select_expressions(schema)
    assert DeltaSink("/data/orders", ["day"]).select_expressions((day, number)) == ["`day`", "`n`"]


@pytest.mark.parametrize(
    "spark",
    [
        "tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary",
        "date", "timestamp", "timestamp_ntz", "decimal(10,2)", "array<map<string,decimal(3,1)>>",
        "struct<a:int,b:array<struct<c-d:string,e:date>>>", "map<int,struct<x:binary>>",
    ],
)  # fmt: skip
def test_a_type_comes_back_from_the_table_as_it_was(spark: str) -> None:
    schema = types.schema_json((Column("c", spark),))
    assert types.column_types(schema) == {"c": spark}
    assert all(field["nullable"] for field in json.loads(schema)["fields"])


def test_text_of_a_length_is_a_string_in_the_table() -> None:
    schema = types.schema_json((Column("c", "array<varchar(3)>"), Column("d", "char(1)")))
    assert types.column_types(schema) == {"c": "array<string>", "d": "string"}
    assert types.normal("map<char(3),varchar(10)>") == "map<string,string>"


@pytest.mark.parametrize("spark", ["void", "struct<a,b:int>", "array<int", "struct<a:b:int>", "x>"])
def test_a_type_that_cannot_be_told_is_refused(spark: str) -> None:
    with pytest.raises(ConfigurationError, match="column 'c' has type"):
        types.schema_json((Column("c", spark),))


def test_delta_rs_reaches_s3_as_spark_does_and_has_deadlines() -> None:
    assert delta_options("/data/orders", HadoopSettings()) is None
    given = HadoopSettings(
        {
            "fs.s3a.endpoint": "store:9000",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.bucket.b.access.key": "user",
            "fs.s3a.access.key": "another",
        }
    )
    options = delta_options("s3://b/t", given)
    assert options is not None
    assert options["aws_endpoint_url"] == "http://store:9000"
    assert options["aws_allow_http"] == "true"
    assert options["aws_access_key_id"] == "user"
    assert options["retry_timeout"] == "20s"
    plain = delta_options("s3://b/t", HadoopSettings())
    assert plain is not None
    assert "aws_allow_http" not in plain

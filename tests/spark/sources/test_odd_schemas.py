"""Files whose columns and nested fields have names that no DDL takes unquoted, through every sink
that needs no server.

How: the same file is read by a job and by Spark's own batch reader; what the sinks hold is compared
with Spark's rows, as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

import seamark as sm
from tests.spark.jobs.test_job import read

NAMES = ["user-agent", "@timestamp", "a.b", "two words", "q'\"q", "b`t", "größe", "1st", "order"]
NESTED = StructType([StructField(name, StringType()) for name in NAMES])
SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("@meta.data", NESTED),
        StructField("a list", ArrayType(NESTED)),
        StructField("map`s", MapType(StringType(), NESTED)),
    ]
)


def job(tmp_path: Path, schema: object) -> tuple[sm.Job, sm.FileSource]:
    source = sm.FileSource(str(tmp_path / "in"), "json", schema, ending="latest")  # type: ignore[arg-type]
    return sm.Job("odd", sm.CheckpointConfig(storage=f"file://{tmp_path}/store")), source


@pytest.mark.parametrize("colon", [False, True])
def test_rows_with_odd_names_arrive(tmp_path: Path, spark: SparkSession, colon: bool) -> None:
    schema = SCHEMA
    names = list(NAMES)
    if colon:
        schema, names = StructType.fromJson(SCHEMA.jsonValue()), [*NAMES, "a:b,c<d>"]
        for nested in (schema[1].dataType, schema[2].dataType.elementType):
            nested.add(names[-1], StringType())
    inner = {name: f"value {i}" for i, name in enumerate(names)}
    row = {"id": 1, "@meta.data": inner, "a list": [inner, {}], "map`s": {"k": inner}}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text(json.dumps(row))
    made, source = job(tmp_path, schema)
    rows = made.source(source, "in")
    assert rows.schema == spark.read.schema(schema).json(str(tmp_path / "in")).schema
    made.sink(rows, sm.FileSink(str(tmp_path / "parquet")), "parquet")
    made.sink(rows, sm.FileSink(str(tmp_path / "json"), "json"), "json")
    made.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "sqlite")
    kept: list[str] = []
    function = sm.WriteAheadSink.foreach_batch(lambda df, _: kept.extend(df.toJSON().collect()))
    made.sink(rows, function, "function")
    made.run()
    expected = spark.read.schema(schema).json(str(tmp_path / "in")).toJSON().collect()
    assert kept == expected
    for format_ in ("parquet", "json"):
        reader = spark.read.schema(schema).format(format_)
        assert reader.load(str(tmp_path / format_)).toJSON().collect() == expected
    ((text,),) = read(tmp_path / "out.db", 'SELECT "@meta.data" FROM t')
    assert json.loads(text) == inner


@pytest.mark.parametrize("pattern", ["false", "true"])
def test_a_name_is_no_pattern_and_has_no_variable(
    tmp_path: Path, spark: SparkSession, pattern: str
) -> None:
    """Spark reads a quoted name as a pattern by a setting, and ``${…}`` as a variable of its own;
    the program's own expressions stay as Spark reads them."""
    names = ["price", "price($)", "p|q", ".*", "${x}"]
    row = {name: str(number) for number, name in enumerate(names)} | {"list": ["a"]}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text(json.dumps(row))
    schema = StructType([StructField(name, StringType()) for name in names])
    schema.add("list", ArrayType(StringType()))
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", pattern)
    try:
        made, source = job(tmp_path, schema)
        rows = made.source(source, "in")
        made.sink(rows, sm.FileSink(str(tmp_path / "parquet")), "parquet")
        made.sink(rows, sm.FileSink(str(tmp_path / "json"), "json"), "json")
        made.sink(rows.drop("list"), sm.FileSink(str(tmp_path / "csv"), "csv"), "csv")
        made.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "sqlite")
        own = rows.selectExpr("`price|list`") if pattern == "true" else rows.select("price", "list")
        made.sink(own, sm.FileSink(str(tmp_path / "own"), "json"), "own")
        made.run()
    finally:
        spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")
    for format_ in ("parquet", "json"):
        found = spark.read.schema(schema).format(format_).load(str(tmp_path / format_))
        assert [r.asDict() for r in found.collect()] == [row]
    found = spark.read.csv(str(tmp_path / "csv"), header=True)
    assert [r.asDict() for r in found.collect()] == [{name: row[name] for name in names}]
    (kept,) = read(tmp_path / "out.db", "SELECT * FROM t")
    assert kept == (*(row[name] for name in names), '["a"]')
    assert spark.read.json(str(tmp_path / "own")).first() == (["a"], "0")


def test_a_delta_table_is_made_with_odd_nested_names(tmp_path: Path, spark: SparkSession) -> None:
    """A table without column mapping has no names with blanks."""
    nested = StructType([field for field in NESTED if " " not in field.name])
    inner = {name: f"value {i}" for i, name in enumerate(nested.names)}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text(json.dumps({"id": 1, "inner": inner}))
    schema = StructType([StructField("id", LongType()), StructField("inner", nested)])
    made, source = job(tmp_path, schema)
    table = sm.DeltaSink(str(tmp_path / "table"), create_table=True)
    made.sink(made.source(source, "in"), table, "out")
    made.run()
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist() == [
        {"id": 1, "inner": inner}
    ]


def test_what_spark_cannot_read_is_one_line(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    made, source = job(tmp_path, "id BIGINTT")
    with pytest.raises(sm.ConfigurationError, match="source 'in': json files in ") as told:
        made.source(source, "in")
    assert "\n" not in str(told.value)

"""Programs that are changed over one directory of files, judged by Spark's own readers.

How: each pair of columns is written into one directory, by Spark. What a start bears must read back
whole; what it refuses must fail, or give other values, in one of two ways to read. Then whole
programs through each door.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

import seamark as sm
from seamark.model.schema import Column
from seamark.sinks.files import FileSink
from seamark.sinks.files.layout import Layout, Unfit
from seamark.spark.session import spark_schema

VALUES = {
    "int": "7", "bigint": "5000000000L", "double": "2.5D", "float": "CAST(1.5 AS FLOAT)",
    "string": "'x'", "date": "DATE'2026-01-02'", "boolean": "true", "decimal(5,2)": "1.25BD",
    "decimal(9,2)": "1234567.25BD",
}  # fmt: skip
PAIRS = [
    (f"1 k, CAST({VALUES[a]} AS {a}) v", f"2 k, CAST({VALUES[b]} AS {b}) v")
    for a, b in [
        ("int", "bigint"), ("int", "double"), ("int", "string"), ("float", "double"),
        ("decimal(5,2)", "decimal(9,2)"), ("string", "date"), ("boolean", "int"),
    ]
]  # fmt: skip
PAIRS += [
    ("1 k, 'x' v", "2 k, 'y' v, 3 n"),
    ("1 k, 'x' v", "3 n, 2 k, 'y' v"),
    ("1 k, 'x' v", "'y' v, 2 k"),
    ("1 k, 'x' v, 3 n", "2 k, 'y' v"),
    ("1 k, 'x' v", "2 k, 'y' V"),
]
NESTED = [
    ("1 k, named_struct('a', 1) v", "2 k, named_struct('a', 1, 'b', 2) v"),
    ("1 k, array(named_struct('a', 1)) v", "2 k, array(named_struct('a', 1, 'b', 1)) v"),
    ("1 k, named_struct('a', 1) v", "2 k, named_struct('A', 1) v"),
    ("1 k, array(1) v", "2 k, 3 v"),
]
"""Spark's CSV has none of these."""


@pytest.mark.parametrize(
    ("form", "before", "after"),
    [(form, *pair) for form in ("parquet", "json") for pair in PAIRS + NESTED]
    + [("csv", *pair) for pair in PAIRS],
)
def test_spark_reads_what_a_start_bears(
    spark: SparkSession, tmp_path: Path, form: str, before: str, after: str
) -> None:
    frames = [spark.sql(f"SELECT {one}").coalesce(1) for one in (before, after)]
    schemas = [tuple(Column(*column) for column in spark_schema(frame)) for frame in frames]
    layouts = [Layout.of(FileSink(tmp_path, form), schema) for schema in schemas]  # type: ignore[arg-type]
    for frame in frames:
        frame.write.mode("append").option("header", True).format(form).save(str(tmp_path / "out"))
    try:
        layouts[1].require_fit(layouts[0])
    except Unfit:
        assert not read_whole(spark, tmp_path / "out", form, frames)
    else:
        assert read_whole(spark, tmp_path / "out", form, frames)


def read_whole(spark: SparkSession, path: Path, form: str, frames: list[DataFrame]) -> bool:
    """Whether readers get the rows of both programs: by the files alone, and with the columns of
    the later program, or of the one with more."""
    options = {"header": "true", "inferSchema": "true", "mergeSchema": "true"}

    def reader() -> DataFrameReader:
        return spark.read.options(**options).format(form)

    columns = max(reversed(frames), key=lambda frame: len(frame.columns)).schema
    wanted = [row for frame in frames for row in values(frame)]
    try:
        if values(reader().schema(columns).load(str(path))) != wanted:
            return False
        # Of CSV with two headers inferSchema takes one for a row, so that every value is text.
        untyped = form == "csv" and frames[0].columns != frames[1].columns
        return untyped or values(reader().load(str(path))) == wanted
    except (PySparkException, Py4JJavaError):
        return False


def values(frame: DataFrame) -> list[Any]:
    """Return each row's values by name, in lower case; a null is none."""
    rows = [without_nulls(row.asDict(recursive=True)) for row in frame.collect()]
    return sorted(
        ({n.lower(): v for n, v in row.items()} for row in rows), key=lambda r: str(r.get("k"))
    )


def without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return value


ROWS = "id BIGINT, page STRING, day STRING"


def add(tmp_path: Path, ids: range) -> None:
    lines = [json.dumps({"id": i, "page": f"p{i % 3}", "day": f"d{i % 2}"}) for i in ids]
    (tmp_path / "in").mkdir(exist_ok=True)
    (tmp_path / f"in/{ids.start}.json").write_text("\n".join(lines))


@pytest.fixture
def rows(tmp_path: Path, spark: SparkSession) -> DataFrame:
    add(tmp_path, range(5))
    return spark.readStream.schema(ROWS).json(str(tmp_path / "in"))


def by_write_stream(frame: DataFrame, at: Path, form: str, *by: str) -> None:
    writer = sm.write_stream(frame).format(form).partitionBy(*by).option("path", str(at / "out"))
    writer = writer.option("checkpointLocation", str(at / "location"))
    writer.trigger(availableNow=True).start().awaitTermination()


def by_data_source(frame: DataFrame, at: Path, form: str, *by: str) -> None:
    options = sm.sink_options(sm.FileSink(str(at / "out"), form, partition_by=by))  # type: ignore[arg-type]
    writer = frame.writeStream.format("seamark").options(**options)
    writer = writer.option("checkpointLocation", str(at / "location"))
    writer.trigger(availableNow=True).start().awaitTermination()


def by_job(frame: DataFrame, at: Path, form: str, *by: str) -> None:
    job = sm.Job("files", sm.CheckpointConfig(storage=str(at / "store"), interval=0))
    source = sm.FileSource(str(at / "in"), format="json", schema=ROWS, ending="latest")
    stream = job.source(source, "in").select(*frame.columns)
    sink = sm.FileSink(str(at / "out"), form, partition_by=by)  # type: ignore[arg-type]
    job.sink(stream, sink, "out")
    job.run()


@pytest.mark.parametrize("door", [by_write_stream, by_data_source, by_job])
def test_a_changed_program_over_one_checkpoint(
    spark: SparkSession, tmp_path: Path, rows: DataFrame, door: Any
) -> None:
    door(rows, tmp_path, "parquet")
    add(tmp_path, range(5, 10))
    before = sorted((tmp_path / "out").rglob("*.parquet"))
    for form, by in (("parquet", ["day"]), ("csv", [])):
        with pytest.raises(Exception, match="it has plain parquet files, and this program gives"):
            door(rows, tmp_path, form, *by)
    assert sorted((tmp_path / "out").rglob("part-*")) == before
    door(rows.drop("day"), tmp_path, "parquet")
    found = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "out"))
    assert [row.id for row in found.orderBy("id").collect()] == list(range(10))
    assert found.where("day IS NULL").count() == 5

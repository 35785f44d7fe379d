"""FileSink's files as Spark reads them back, and Hive's layout as Spark writes it itself.

One bounded job into all three formats; then Spark's own readers, and DuckDB's, must give the same
rows back.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.contracts.read_back import ReadBack
from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import ConfigurationError
from seamark.sinks.internal import partitions

DATA = (
    "id BIGINT, small SMALLINT, yes BOOLEAN, x DOUBLE, price DECIMAL(10,2), at TIMESTAMP, "
    "local TIMESTAMP_NTZ, name STRING"
)
NESTED = ", tags ARRAY<STRING>, who STRUCT<age: INT, mail: STRING>"
BY = "day DATE, country STRING"
ODD = ["DE", "a/b=c:d %", "", None, "ü é", "..", "x\\y", "[1]{2}^'\"#*?"]


def committed(path: Path, batch: pa.RecordBatch, by: Sequence[str] = ()) -> None:
    """Write a batch and commit it."""
    sink = sm.FileSink(str(path), partition_by=by)
    committer = sink.create_committer(SinkContext("job", "job", "out", 1, 5.0))
    committer.preflight()
    writer = sink.create_writer(WriterContext("job", "out", 1, 0, 0, 0, -1))
    writer.write(batch)
    assert {*committer.commit(writer.prepare_commit())} == {CommitOutcome.COMMITTED}


def rows() -> list[dict[str, object]]:
    return [
        {
            "id": i,
            "small": i % 7 - 3,
            "yes": i % 2 == 0,
            "x": i / 3 if i % 5 else None,
            "price": f"{i}.25",
            "at": "2026-07-01T16:00:00.123456Z",
            "local": "2026-07-01T16:00:00.654321",
            "name": [None, "", "plain", 'say "hi", then\nbye', " blank ", "NULL"][i % 6],
            "tags": ["a", None] if i % 3 else None,
            "who": {"age": i, "mail": "m@x"} if i % 4 else None,
            "day": f"2026-01-{1 + i % 2:02d}",
            "country": ODD[i % len(ODD)],
        }
        for i in range(48)
    ]


def test_spark_reads_back_what_went_in(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rows.json").write_text("\n".join(map(json.dumps, rows())))
    schema = f"{DATA}{NESTED}, {BY}"
    job = sm.Job("files", sm.CheckpointConfig(storage=str(tmp_path / "store"), interval=0))
    source = sm.FileSource(str(tmp_path / "in"), format="json", schema=schema, ending="latest")
    frame = job.source(source, "in")
    by = ["day", "country"]
    for form, packed in (("parquet", "zstd"), ("json", "gzip")):
        sink = sm.FileSink(str(tmp_path / form), form, partition_by=by, compression=packed)
        job.sink(frame, sink, form)
    flat = frame.drop("tags", "who")
    # A null of CSV and the text that stands for it read alike, so it must be none of the texts.
    csv = sm.FileSink(
        str(tmp_path / "csv"), "csv", partition_by=by, delimiter="|", null_value="\\N"
    )
    job.sink(flat, csv, "csv")
    with pytest.raises(ConfigurationError, match="partition column 'land'"):
        job.sink(flat, sm.FileSink(str(tmp_path / "x"), partition_by=["land"]), "x")
    job.run()

    sent = spark.read.schema(schema).json(str(tmp_path / "in"))
    # Hive's layout has one directory for null and the empty text, and reads it as null.
    expected = sent.withColumn("country", F.expr("nullif(country, '')")).orderBy("id").collect()
    assert len(expected) == 48
    assert expected[1].price == Decimal("1.25")
    assert isinstance(expected[1].day, datetime.date)
    for form in ("parquet", "json"):
        read = spark.read.schema(schema).format(form).load(str(tmp_path / form))
        assert _comparable(read.collect()) == _comparable(expected), form
    read = (
        spark.read.schema(f"{DATA}, {BY}")
        .options(header=True, sep="|", nullValue="\\N", escape='"', multiLine=True)
        .csv(str(tmp_path / "csv"))
    )
    without = [
        Row(**{k: v for k, v in row.asDict().items() if k not in ("tags", "who")})
        for row in expected
    ]
    assert _comparable(read.collect()) == _comparable(without)
    found = duckdb.sql(
        f"SELECT id, price, name FROM read_parquet('{tmp_path}/parquet/**/*.parquet') ORDER BY id"
    ).fetchall()
    assert found == [(row.id, row.price, row.name) for row in expected]


def test_spark_finds_not_a_number_by_each_comparison(spark: SparkSession, tmp_path: Path) -> None:
    x = pa.array([1.0, None, float("nan")])
    committed(tmp_path, pa.record_batch({"x": x, "who": pa.StructArray.from_arrays([x], ["x"])}))
    read = spark.read.parquet(str(tmp_path))
    for where in ("x > 5", "isnan(x)", "x = double('NaN')", "who.x > 5", "x >= 2"):
        assert read.where(where).count() == 1, where


def test_directories_have_the_names_that_spark_gives_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    values = [f"{chr(code)}x" for code in (*range(1, 128), 0xE9, 0x1F642)] + ["", None, "."]
    name = "c=/%:"
    frame = spark.createDataFrame([(value, 1) for value in values], f"`{name}` STRING, n INT")
    frame.coalesce(1).write.partitionBy(name).parquet(str(tmp_path / "spark"))
    theirs = {path.name for path in (tmp_path / "spark").iterdir() if path.is_dir()}
    assert {partitions.directory_part(name, value) for value in values} == theirs


def test_names_that_readers_skip_or_take_for_null(spark: SparkSession, tmp_path: Path) -> None:
    values = ["._COPYING_", "x._COPYING_", "_COPYING_", partitions.NULL_NAME, "_x", ".x", None]
    batch = pa.record_batch({"n": range(len(values)), "_by": values})
    committed(tmp_path, batch, ["_by"])
    read = spark.read.parquet(str(tmp_path)).orderBy("n").collect()
    assert [row["_by"] for row in read] == values
    pattern = f"SELECT _by FROM read_parquet('{tmp_path}/*/*.parquet', hive_partitioning=true)"
    assert [by for (by,) in duckdb.sql(f"{pattern} ORDER BY n").fetchall()] == values
    sink = sm.FileSink(str(tmp_path), partition_by=["_by"])
    context = SinkContext("job", "job", "out", 1, 5.0)
    asked = ReadBack(context, batch.schema, [], by_transaction=False)
    audit = [row for found in sink.read_back(asked) for row in found.rows.to_pylist()]
    assert sorted(audit, key=lambda row: row["n"]) == batch.to_pylist()


def _comparable(rows: list[Row]) -> list[str]:
    return sorted(str(sorted(row.asDict(recursive=True).items())) for row in rows)

"""The conformance suite's odd values have the texts that Spark's CAST gives, and Spark reads the
sinks' text forms back: the suite itself needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from seamark.contracts.sink import SinkContext
from seamark.contracts.text_forms import as_text
from seamark.model.schema import Column
from seamark.sinks.files import FileSink
from seamark.sinks.internal.columns import cast_to_text
from seamark.verify.conformance import ODD_VALUES
from seamark.verify.conformance.steps import JOB, UID, attempt, until_proved

SCALARS = [
    name
    for name in ODD_VALUES
    if name not in ("string", "binary", "array<bigint>", "timestamp_ntz")
]


def test_the_texts_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    zone, ansi = (
        spark.conf.get("spark.sql.session.timeZone"),
        spark.conf.get("spark.sql.ansi.enabled"),
    )
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        for name in SCALARS:
            kind, values = ODD_VALUES[name]
            column = pa.array(values.values(), kind)
            frame = spark.createDataFrame(pa.table({"v": column}))
            assert frame.schema["v"].dataType.simpleString() == name
            found = [row[0] for row in frame.selectExpr("CAST(v AS STRING)").collect()]
            assert found == list(values), name
            if name.startswith("decimal"):
                spark.conf.set("spark.sql.ansi.enabled", "false")
                plain = frame.selectExpr(cast_to_text(Column("v", name))).collect()
                spark.conf.set("spark.sql.ansi.enabled", ansi)
                assert [row[0] for row in plain] == as_text(column).to_pylist() == found
            if pa.types.is_temporal(kind):
                read_back_by_spark(spark, tmp_path / name, name, column, list(values))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.conf.set("spark.sql.ansi.enabled", ansi)


def read_back_by_spark(
    spark: SparkSession, path: Path, name: str, column: pa.Array, texts: list[str]
) -> None:
    """Write a CSV file; Spark's reader finds the same values."""
    sink, schema = FileSink(path, "csv"), (Column("n", "bigint"), Column("v", name))
    committer = sink.create_committer(SinkContext(JOB, "orders", UID, 1, 5.0, schema))
    committer.preflight()
    writer = sink.create_writer(attempt())
    writer.write(pa.record_batch([pa.array(range(len(column))), column], names=["n", "v"]))
    until_proved(committer.commit, list(writer.prepare_commit()))
    read = spark.read.schema(f"n BIGINT, v {name}").csv(str(path), header=True)
    assert [r[0] for r in read.orderBy("n").selectExpr("CAST(v AS STRING)").collect()] == texts

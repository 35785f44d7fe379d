"""How: plain queries of Spark's over files, each with two equal aggregations, with and without the
reuse of exchanges; their results, and the findings in their plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from seamark.model.errors import WatermarkLostError
from seamark.spark.plans import require_watermarks

FILES = 4


@pytest.fixture
def rows(tmp_path: Path, spark: SparkSession) -> DataFrame:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        lines = [
            {"at": f"2026-01-01T00:0{number}:{second:02}Z", "k": "ab"[second % 2]}
            for second in range(60)
        ]
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))
    stream = spark.readStream.schema("at TIMESTAMP, k STRING").option("maxFilesPerTrigger", 1)
    return stream.json(str(tmp_path / "in")).withWatermark("at", "5 seconds")


def twice(rows: DataFrame) -> DataFrame:
    """Return the union of two projections of one windowed aggregation, with other columns."""
    counts = rows.groupBy(F.window("at", "20 seconds").alias("w"), "k").agg(F.count("*").alias("n"))
    narrow, no_a = counts.select("k", "n"), F.lit(None).cast("struct<k:string,n:bigint>")
    first = narrow.select(
        F.struct("k", "n").alias("a"), F.lit(None).cast("struct<n:bigint>").alias("b")
    )
    return first.union(narrow.select(no_a, F.struct("n")))


@pytest.mark.parametrize("reuse", [True, False])
def test_a_watermark_that_spark_loses_is_found(
    tmp_path: Path, spark: SparkSession, rows: DataFrame, reuse: bool
) -> None:
    given = {"a": 0, "b": 0}

    def count(batch: DataFrame, number: int) -> None:
        for row in batch.collect():
            given["a" if row["a"] is not None else "b"] += 1

    spark.conf.set("spark.sql.exchange.reuse", str(reuse).lower())
    try:
        query = (
            twice(rows)
            .writeStream.foreachBatch(count)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
    finally:
        spark.conf.unset("spark.sql.exchange.reuse")
    query.awaitTermination()
    plan = query._jsq.streamingQuery().lastExecution().executedPlan()
    assert given["a"] > 0
    if reuse:
        assert given["b"] == 0, "Spark is mended: docs/spark-exchange-reuse.md can go"
        with pytest.raises(WatermarkLostError, match="StateStoreSaveExec gets no watermark"):
            require_watermarks("a-job", plan)
    else:
        assert given["b"] == given["a"]
        require_watermarks("a-job", plan)

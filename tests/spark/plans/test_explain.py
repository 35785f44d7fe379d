"""How: jobs are declared over real streaming DataFrames and explained, not run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import seamark as sm


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (F.rand, "id: rand()"),
        (lambda: F.expr("concat(uuid(), 'x')"), "id: uuid()"),
        (lambda: F.udf(lambda: 1, LongType()).asNondeterministic()(), "id: <lambda>()"),
    ],
    ids=["rand", "uuid", "udf"],
)
def test_the_column_that_a_replay_changes_is_named(
    tmp_path: Path, rate: DataFrame, column: Callable[[], Column], shown: str
) -> None:
    job = sm.Job("explained", sm.CheckpointConfig(storage=str(tmp_path)))
    job.source(rate, "rate", replayable=True)
    counts = rate.withWatermark("timestamp", "1 minute").groupBy("timestamp").count()
    rows = counts.withColumn("id", column()).filter("count > 1")
    redis = sm.RedisSink("redis://127.0.0.1:1", key="id")
    job.sink(rows.selectExpr("string(id) AS id", "count"), redis, "to-redis")
    timed = rows.withColumn("at", F.current_timestamp())
    job.sink(timed, sm.FileSink(str(tmp_path), format="json"), "to-files")
    report = job.report()
    assert {end.uid: end.guarantee.value for end in report.sinks} == {
        "to-redis": "at-least-once",
        "to-files": "exactly-once",
    }
    assert f"make {shown} at " in report.remedy
    assert shown in next(part.why for part in report.parts if part.uid == "to-redis")
    assert "the time in at: current_timestamp()" in str(report)
    (operator,) = [part for part in report.parts if part.kind == "operator"]
    assert operator.uid == "operator-0"
    assert "job.uid(dataframe, 'a-name')" in operator.why
    assert "plan: to-redis, to-files share one stream" in str(report)


def test_what_is_computed_more_than_once_is_said(tmp_path: Path, rate: DataFrame) -> None:
    job = sm.Job("explained", sm.CheckpointConfig(storage=str(tmp_path)))
    job.source(rate, "rate", replayable=True)
    counts = rate.withWatermark("timestamp", "1 minute").groupBy("timestamp").count()
    job.uid(counts, "counts")
    many = counts.filter("count > 1").withColumn("n", F.udf(lambda n: n, LongType())("count"))
    for uid, rows in (("raw", rate), ("all", counts), ("many", many)):
        job.sink(rows, sm.FileSink(str(tmp_path / uid), format="json"), uid)
    said = str(job.report())
    assert "plan: source rate is read 3 times in each epoch" in said
    assert "operator counts is computed 2 times, each with state of its own: counts@all, " in said
    assert "counts@many" in said
    assert "share one stream" not in said

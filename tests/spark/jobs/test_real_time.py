"""What a job in real time may not have: refused when it is to run, before anything is written. How:
real plans of a real session; no broker is asked, as nothing starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.errors import ConfigurationError

NOBODY = "127.0.0.1:1"


def a_job(tmp_path: Path, **settings: Any) -> sm.Job:
    checkpoint = {"storage": str(tmp_path / "store"), "interval": "1s", **settings}
    return sm.Job("now", sm.CheckpointConfig(**checkpoint))


def kafka(job: sm.Job, uid: str = "in", **settings: Any) -> DataFrame:
    return job.source(sm.KafkaSource(NOBODY, topics=[uid], **settings), uid=uid)


def to_kafka(job: sm.Job, rows: DataFrame, uid: str = "out") -> None:
    sink = sm.KafkaSink(NOBODY, topic=uid, delivery_guarantee="at-least-once")
    job.sink(rows.select(F.col("value")), sink, uid=uid)


def refused(job: sm.Job, tmp_path: Path) -> str:
    with pytest.raises(ConfigurationError, match='execution="real-time"') as raised:
        job.run(execution="real-time")
    assert not (tmp_path / "store").exists(), "something was written"
    return str(raised.value)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"mode": "at-most-once"}, "mode is 'at-most-once'"),
        ({"interval": "100ms"}, "give at least 0.5s"),
        ({"interval": "10s", "timeout": "10s"}, "give a timeout well above it"),
        ({"min_pause": "1s"}, "min_pause is '1s'"),
    ],
)
def test_settings(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    job = a_job(tmp_path, **settings)
    to_kafka(job, kafka(job))
    assert reason in refused(job, tmp_path)


def joined(rows: DataFrame) -> DataFrame:
    table = rows.sparkSession.range(3).select(
        F.col("id").cast("string").cast("binary").alias("key")
    )
    return rows.join(table, "key")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda rows: rows.dropDuplicates(["value"]), "Deduplicate, which keeps state"),
        (lambda rows: rows.groupBy("value").count(), "Aggregate, which keeps state"),
        (lambda rows: rows.repartition(3), "the step Repartition"),
        (joined, "the step Join"),
    ],
    ids=["duplicates", "aggregation", "repartition", "join"],
)
def test_steps(tmp_path: Path, step: Callable[[DataFrame], DataFrame], reason: str) -> None:
    job = a_job(tmp_path)
    to_kafka(job, step(kafka(job)))
    assert reason in refused(job, tmp_path)


def test_sources_and_sinks(tmp_path: Path, rate: DataFrame) -> None:
    job = a_job(tmp_path)
    to_kafka(job, kafka(job, ending="latest"))
    assert "source 'in' ends by itself" in refused(job, tmp_path)

    job = a_job(tmp_path)
    to_kafka(job, kafka(job, "one"), "first")
    to_kafka(job, kafka(job, "two"), "second")
    assert "its sinks read 2 streams" in refused(job, tmp_path)

    job = a_job(tmp_path)
    stream = job.source(rate, uid="rate", replayable=True)
    to_kafka(job, stream.select(F.col("value").cast("string")))
    assert "a source of format 'rate'" in refused(job, tmp_path)

    job = a_job(tmp_path)
    with sqlite3.connect(tmp_path / "sink.db") as connection:
        connection.execute("CREATE TABLE rows (value BLOB)")
    sink = sm.SQLiteSink(tmp_path / "sink.db", "rows")
    job.sink(kafka(job).select("value"), sink, uid="table")
    assert "sink 'table'" in refused(job, tmp_path)


def test_an_unknown_execution(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    to_kafka(job, kafka(job))
    with pytest.raises(
        ConfigurationError, match="execution is 'continuous'; allowed are 'micro-batch'"
    ):
        job.run(execution="continuous")  # type: ignore[arg-type]

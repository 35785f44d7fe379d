"""The limit on an Arrow batch's bytes, on a real session: lifted and put back; and one that
doubles rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.run.epoch_work import BatchLimit

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
OUTPUT_LIMIT = "spark.sql.execution.arrow.maxRecordsPerOutputBatch"


def task(rows: int, data_bytes: int) -> TaskReport:
    sink = SinkReport(rows=rows, committables=(), data_bytes=data_bytes, write_s=0, flush_s=0)
    return TaskReport(0, 0, 0.0, 0.0, {"out": sink})


MANY = task(20_000, 2_000_000)
"""Two full batches of Spark's."""


def test_the_limit_is_lifted_while_rows_are_small(spark: SparkSession) -> None:
    session = spark.newSession()
    before = session.conf.get(LIMIT)
    limit = BatchLimit()
    limit.after_epoch(session, [MANY, MANY])
    assert session.conf.get(LIMIT) == str(2**31 - 1)
    limit.after_epoch(session, [])  # an epoch without rows says nothing
    assert session.conf.get(LIMIT) == str(2**31 - 1)
    limit.after_epoch(session, [MANY, task(20_000, 600_000_000)])
    assert session.conf.get(LIMIT) == before


def test_the_limit_stays_where_a_task_has_few_rows(spark: SparkSession) -> None:
    """It costs little there, and the next rows may be large ones."""
    session = spark.newSession()
    before = session.conf.get(LIMIT)
    limit = BatchLimit()
    limit.after_epoch(session, [task(10_000, 1_000_000), task(10_000, 1_000_000)])
    assert session.conf.get(LIMIT) == before
    limit.after_epoch(session, [MANY, MANY])
    limit.after_epoch(session, [task(1000, 100_000), MANY])
    assert session.conf.get(LIMIT) == before


def test_a_run_with_large_rows_keeps_the_limit(spark: SparkSession) -> None:
    """Only its first epoch of large rows meets tasks without it."""
    session = spark.newSession()
    before = session.conf.get(LIMIT)
    limit = BatchLimit()
    for tasks in ([MANY], [task(20_000, 600_000_000)], [MANY], [MANY]):
        limit.after_epoch(session, tasks)
    assert session.conf.get(LIMIT) == before


def test_one_larger_row_in_a_quiet_moment_says_nothing(spark: SparkSession) -> None:
    session = spark.newSession()
    limit = BatchLimit()
    for tasks in ([task(1, 900)], [MANY]):
        limit.after_epoch(session, tasks)
    assert session.conf.get(LIMIT) == str(2**31 - 1)


def test_without_a_limit_on_rows_the_one_on_bytes_stays(spark: SparkSession) -> None:
    session = spark.newSession()
    before = session.conf.get(LIMIT)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "0")
    BatchLimit().after_epoch(session, [MANY])
    assert session.conf.get(LIMIT) == before


def test_rows_that_spark_would_double_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text('{"id": 1}\n{"id": 2}\n')
    job = sm.Job("limited", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    rows = job.source(sm.FileSource(str(tmp_path / "in"), "json", "id INT", ending="latest"), "in")
    job.sink(sm.process(rows, lambda b: b, "id INT", uid="p").select("id"),
             sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")  # fmt: skip
    spark.conf.set(OUTPUT_LIMIT, "1")
    try:
        with pytest.raises(sm.ConfigurationError, match=f"{OUTPUT_LIMIT} is 1, .* unset it"):
            job.run()
    finally:
        spark.conf.unset(OUTPUT_LIMIT)
    assert not (tmp_path / "out.db").exists()

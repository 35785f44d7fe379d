"""What the Spark at hand can do, and what it refuses with the reason; `make test-spark` runs it on
others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.spark.java.compiled import classes_jar, loaded_class
from seamark.spark.spark_versions import (
    HAS_READ_LIMITS,
    has_real_time_mode,
    has_zoned_arrow,
    repartition_by_id,
)


@pytest.mark.parametrize(
    "name", ["SeamarkTriggerClock", "SeamarkDrain", "SeamarkIntake", "SeamarkEpochSink"]
)
def test_each_class_of_the_driver_compiles(spark: SparkSession, name: str) -> None:
    assert loaded_class(spark._jvm, name).getName() == name


def test_the_classes_of_tasks_compile(spark: SparkSession) -> None:
    assert classes_jar(spark).stat().st_size > 10_000


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_rows_go_to_the_partition_of_their_number(
    spark: SparkSession, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(DataFrame, "repartitionById", raising=False)
    number = f"CAST(pmod(id * 7 - 50, {partitions}) AS INT)"
    rows = repartition_by_id(spark.range(40).toDF("id"), partitions, number)
    found = rows.select(F.expr(number), F.spark_partition_id()).collect()
    assert rows.rdd.getNumPartitions() == partitions
    assert all(wanted == actual for wanted, actual in found)


@pytest.mark.parametrize(
    "source",
    [sm.DatagenSource(rows_per_second=1), sm.SocketSource("localhost", 1)],
    ids=["DatagenSource", "SocketSource"],
)
def test_a_source_in_python_needs_read_limits(
    spark: SparkSession, tmp_path: Path, source: Any
) -> None:
    job = sm.Job("job", sm.CheckpointConfig(storage=tmp_path.as_uri()))
    if HAS_READ_LIMITS:
        assert job.source(source, uid="rows").isStreaming
        return
    name = type(source).__name__
    with pytest.raises(sm.MissingDependencyError, match=f"{name} needs Spark 4.2 or later"):
        job.source(source, uid="rows")


class _Nothing(sm.KeyedProcessFunction):
    def process_element(self, row: Any, context: Any) -> Any:
        return None


def test_keyed_process_needs_zoned_arrow(spark: SparkSession, rate: DataFrame) -> None:
    def declared() -> DataFrame:
        return sm.keyed_process(rate, "value", _Nothing(), uid="k", output_schema="n LONG")

    if has_zoned_arrow():
        assert declared().columns == ["n"]
        return
    with pytest.raises(sm.MissingDependencyError, match=r"'k': needs Spark 4\.2 or later"):
        declared()


def test_real_time_needs_the_mode(spark: SparkSession, tmp_path: Path, rate: DataFrame) -> None:
    job = sm.Job("job", sm.CheckpointConfig(storage=tmp_path.as_uri()))
    rows = job.source(rate, uid="rate", replayable=False)
    job.sink(rows, sm.FileSink(tmp_path / "out"), uid="out")
    reason = "cannot run with" if has_real_time_mode() else "needs Spark 4.2 or later"
    with pytest.raises(sm.ConfigurationError, match=reason):
        job.run(execution="real-time")

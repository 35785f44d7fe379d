"""How: bounded jobs in a real session, through Spark's own batch writers; pyarrow reads their
output, and a test repeats an epoch by taking its records away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import ConfigurationError, PreflightError, SendRefusedError


def written(directory: Path) -> list[Any]:
    return sorted(
        pyarrow.dataset.dataset(str(directory), format="parquet").to_table()["id"].to_pylist()
    )


def test_a_job_through_spark_s_batch_writer(tmp_path: Path, spark: SparkSession) -> None:
    """Types come through as they are, and each epoch's directory is its own."""
    (tmp_path / "in").mkdir()
    for part in range(2):
        lines = [json.dumps({"id": 10 * part + i}) for i in range(10)]
        (tmp_path / f"in/{part}.json").write_text("\n".join(lines))
    job = sm.Job("writer", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    source = sm.FileSource(
        str(tmp_path / "in"), format="json", schema="id BIGINT", ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    rows = job.source(source, "in").select(
        "id",
        F.expr("CAST(id AS DECIMAL(10, 2))").alias("price"),
        F.expr("timestamp_micros(id)").alias("at"),
        F.expr("CAST(timestamp_micros(id) AS TIMESTAMP_NTZ)").alias("at ntz"),
        F.expr("named_struct('a', array(id), 'b', map('k', id))").alias("nested"),
        F.expr("CAST(NULL AS BINARY)").alias("nothing"),
    )
    out = tmp_path / "out"
    sink = sm.WriteAheadSink.spark_format(
        "parquet", {"path": f"{out}/{{epoch}}"}, mode="overwrite", idempotent=True
    )
    job.sink(rows, sink, "files")
    assert "exactly-once" in str(job.report())
    job.run()
    assert sorted(written(out / "0") + written(out / "1")) == list(range(20))
    assert spark.read.parquet(str(out / "0")).dtypes == rows.dtypes
    assert [p for p in (tmp_path / "store/writer/wal").rglob("*") if p.is_file()] == []


def committed(sink: Any, tmp_path: Path, epoch: int) -> list[CommitOutcome]:
    """Write two tasks' rows and commit them, without a job."""
    (tmp_path / "job").mkdir(exist_ok=True)
    uri = (tmp_path / "job/wal/out").as_uri()
    buffers = []
    for partition in range(2):
        writer = sink.create_writer(
            WriterContext("j", "out", 1, epoch, partition, 0, -1, spool_uri=uri)
        )
        writer.write(pyarrow.record_batch({"id": [2 * partition, 2 * partition + 1]}))
        buffers += writer.prepare_commit()
    committer = sink.create_committer(SinkContext("j", "j", "out", 1, 1.0, spool_uri=uri))
    committer.preflight()
    return list(committer.commit(buffers))


def test_an_epoch_that_is_written_again_replaces_itself_by_its_token(
    tmp_path: Path, spark: SparkSession
) -> None:
    kept, plain = tmp_path / "kept", tmp_path / "plain"
    overwriting = sm.WriteAheadSink.spark_format(
        "parquet", {"path": f"{kept}/{{token}}"}, mode="overwrite", idempotent=True
    )
    appending = sm.WriteAheadSink.spark_format("parquet", {"path": str(plain)})
    for _ in range(2):  # as after a crash between the write and its record
        assert committed(overwriting, tmp_path, 0) == [CommitOutcome.COMMITTED] * 2
        assert committed(appending, tmp_path, 0) == [CommitOutcome.COMMITTED] * 2
    assert [path.name for path in kept.iterdir()] == ["j-out-0"]
    assert written(kept / "j-out-0") == [0, 1, 2, 3]
    assert written(plain) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_what_spark_refuses_stops_the_job(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(PreflightError, match=r"data source: no-such-format.*Give Spark its conn"):
        committed(sm.WriteAheadSink.spark_format("no-such-format"), tmp_path, 0)
    text = sm.WriteAheadSink.spark_format("text", {"path": str(tmp_path / "out")})
    with pytest.raises(SendRefusedError, match="UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE"):
        committed(text, tmp_path, 1)
    (tmp_path / "a file").touch()
    away = sm.WriteAheadSink.spark_format("parquet", {"path": str(tmp_path / "a file/out")})
    with pytest.raises(ConnectionError, match="epoch 2 could not be sent"):  # it is asked again
        committed(away, tmp_path, 2)


def test_mistakes_and_secrets() -> None:
    sink = sm.WriteAheadSink.spark_format("jdbc", {"password": "secret", "batchsize": 10})
    assert "secret" not in repr(sink) + sink.describe()
    with pytest.raises(ConfigurationError, match="mode is 'ignore'; allowed are 'append'"):
        sm.WriteAheadSink.spark_format("parquet", mode="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="format is ''"):
        sm.WriteAheadSink.spark_format("")
    with pytest.raises(ConfigurationError, match="options is a list; give a dict"):
        sm.WriteAheadSink.spark_format("parquet", ["path"])  # type: ignore[arg-type]

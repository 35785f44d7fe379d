"""How: bounded jobs in a real session, through Spark's own batch writers; pyarrow reads their
output, and a test repeats an epoch by taking its records away."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.checkpoint import coordinator, sink_commits
from seamark.contracts.sink import CommitOutcome, SinkContext, WriterContext
from seamark.model.errors import ConfigurationError, PreflightError, SendRefusedError
from seamark.run import supervision
from tests.chaos.driver import wait_until


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


def numbers(tmp_path: Path, spark: SparkSession) -> DataFrame:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text('{"id": 1}')
    return spark.readStream.schema("id BIGINT").json(str(tmp_path / "in"))


def test_a_function_that_outlives_its_run_is_not_called_again_meanwhile(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two calls at once would write one epoch's rows twice, whatever the function keeps. The time
    that a stop gives to a call, 15 seconds and more, is cut short."""
    monkeypatch.setattr(supervision, "DRAIN_PATIENCE_S", 0.5)
    monkeypatch.setattr(coordinator, "LAST_WORDS_S", 0.2)
    monkeypatch.setattr(sink_commits, "LAST_CALL_S", 0.5)
    calls, release = [], threading.Event()

    def function(frame: DataFrame, epoch: int) -> None:
        calls.append(epoch)
        assert release.wait(120)

    writer = sm.write_stream(numbers(tmp_path, spark)).foreachBatch(function)
    writer.option("checkpointLocation", str(tmp_path / "store/query"))
    query = writer.start()
    wait_until("a call", lambda: calls, 60)
    query.stop()
    assert "has not returned" in str(query.exception())
    next_start: SimpleQueue[Any] = SimpleQueue()
    thread = threading.Thread(target=lambda: next_start.put(writer.start()), daemon=True)
    thread.start()
    time.sleep(3)
    waits = thread.is_alive()
    release.set()
    again = next_start.get(timeout=60)
    again.processAllAvailable()
    again.stop()
    assert waits
    assert calls == [0]


QUERIES: SimpleQueue[Any] = SimpleQueue()


@dataclass(frozen=True)
class Stopping(sm.WriteAheadSink):
    """Stops its own query."""

    def describe(self) -> str:
        return "stopping"

    def send(self, batches: Iterator[pa.RecordBatch], token: sm.EpochToken) -> None:
        QUERIES.get(timeout=60).stop()


def test_a_send_that_stops_its_own_query_ends_it(tmp_path: Path, spark: SparkSession) -> None:
    """It does not wait for the end, which waits for it."""
    writer = sm.write_stream(numbers(tmp_path, spark), Stopping())
    query = writer.option("checkpointLocation", str(tmp_path / "store/query")).start()
    QUERIES.put(query)
    assert query.awaitTermination(60) is True
    assert query.exception() is None

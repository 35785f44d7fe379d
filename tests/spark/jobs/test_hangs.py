"""How: real queries over a silent file, a FIFO without a writer: Spark's open of it, in the JVM,
blocks as on a mount without its server, and no interrupt ends it. The deadlines of minutes are cut
to seconds. A storage server stopped in the middle of a run is in
`tests/integration/storage/test_hangs.py`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.model.errors import CheckpointExpiredError, QueryHangsError
from seamark.runtime import query
from tests.spark.jobs.test_failures import bounded_job, files, supervisor
from tests.unit.checkpoint.test_files_deadline import hanging


def test_a_query_that_does_not_start_ends_the_job(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`metadata` is the first file read by Spark, in the call to start the query."""
    monkeypatch.setattr(query, "QUERY_START_S", 3.0)
    files(tmp_path, 1)
    job, rows = bounded_job(tmp_path)
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")
    with hanging(tmp_path / "store/job/spark/metadata"):
        with pytest.raises(QueryHangsError, match="has not started within 3 s") as raised:
            job.run()
        assert str(tmp_path / "store/job/spark") in str(raised.value)
    assert supervisor(job).restarts == 0


def test_a_stream_thread_that_hangs_before_the_first_epoch_expires_and_ends_the_job(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file source reads its own log when the query has started, on Spark's stream thread. No
    epoch is under way: its time-out is the watch's. As the query cannot be stopped either, the job
    ends, whatever its settings tolerate."""
    monkeypatch.setattr(query, "QUERY_END_S", 4.0)
    files(tmp_path, 1)
    job, rows = bounded_job(
        tmp_path,
        timeout="3s",
        tolerable_failed_checkpoints=10,
        restart_strategy=sm.RestartStrategy.fixed_delay(attempts=10),
    )
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")
    begun = time.monotonic()
    with hanging(tmp_path / "store/job/spark/sources/0/0"):
        with pytest.raises(
            QueryHangsError, match="has not ended 4 s after it was stopped"
        ) as found:
            job.run()
        assert time.monotonic() - begun < 60
        assert isinstance(found.value.__cause__, CheckpointExpiredError)
        assert "has not begun epoch 0 for 3 s" in str(found.value.__cause__)
    assert supervisor(job).restarts == 0
    while spark.streams.active:  # it reads an empty file now, and fails
        time.sleep(0.1)

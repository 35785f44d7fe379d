"""How: real queries over a silent file, a FIFO without a writer: Spark's open of it, in the JVM,
blocks as on a mount without its server, and no interrupt ends it. The deadlines of minutes are cut
to seconds. A storage server stopped in the middle of a run is in
`tests/integration/storage/test_hangs.py`."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.checkpoint import coordinator
from seamark.model.errors import CheckpointExpiredError, QueryHangsError
from seamark.run import query
from tests.chaos.driver import wait_until
from tests.spark.jobs.test_failures import bounded_job, count, files, supervisor
from tests.threads import RunningJob
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


class HangingSink(sm.SQLiteSink):
    """Lists no lingering transaction once it has committed: the call does not return."""

    def create_committer(self, context: Any) -> Any:
        return HangingCommitter(super().create_committer(context))


RELEASED = threading.Event()


class HangingCommitter:
    def __init__(self, committer: Any) -> None:
        self._committer = committer
        self._hangs = False

    def commit(self, committables: Any) -> Any:
        self._hangs = True
        return self._committer.commit(committables)

    def list_lingering(self) -> Any:
        if self._hangs:
            RELEASED.wait()
        return self._committer.list_lingering()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)


def test_sinks_that_hang_do_not_hold_up_a_good_end(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is committed: their transactions that linger are left to the next start."""
    monkeypatch.setattr(coordinator, "LISTING_DEADLINE_S", 2.0)
    files(tmp_path, 1)
    job, rows = bounded_job(tmp_path)
    for name in ("out", "more"):
        job.sink(rows, HangingSink(str(tmp_path / f"{name}.db"), "t"), name)
    running = RunningJob(job)
    try:
        wait_until("the end", lambda: job._run and supervisor(job).end is not None, 60)
    finally:
        RELEASED.set()
    running.join()
    assert count(tmp_path) == (5, 5)

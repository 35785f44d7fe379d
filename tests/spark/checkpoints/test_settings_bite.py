"""How: real queries for each checkpoint setting to show its effect: in the times measured by the
coordinator, in the stored files, or in a sink's rows."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.checkpoint.garbage import LEAST_RECORDS
from seamark.checkpoint.inspection import damaged, inspect
from seamark.jobs.checkpoint_history import open_store
from seamark.spark.hadoop_files import open_files
from tests.chaos.workload import read_column
from tests.spark.jobs.test_job import SlowFileSink, coordinator_of
from tests.threads import meanwhile


def files(tmp_path: Path, ids: list[int]) -> None:
    """One file of one row for each id; the source reads the oldest first."""
    (tmp_path / "in").mkdir(exist_ok=True)
    for id_ in ids:
        file = tmp_path / f"in/{id_:03}.json"
        file.write_text(json.dumps({"id": id_}))
        os.utime(file, (1_700_000_000 + id_,) * 2)


def a_job(tmp_path: Path, ending: str = "latest", **settings: Any) -> tuple[sm.Job, DataFrame]:
    job = sm.Job("job", sm.CheckpointConfig(storage=str(tmp_path / "store"), **settings))
    source = sm.FileSource(
        str(tmp_path / "in"),
        format="json",
        schema="id BIGINT",
        ending=ending,
        options={"maxFilesPerTrigger": "1"},
    )
    return job, job.source(source, "in")


def to_sqlite(tmp_path: Path) -> sm.SQLiteSink:
    return sm.SQLiteSink(str(tmp_path / "out.db"), table="t")


def ids(tmp_path: Path) -> list[int]:
    return sorted(read_column(tmp_path / "out.db", "t", "id"))


def history(job: sm.Job) -> list[Any]:
    return list(coordinator_of(job).history)


def test_the_next_epoch_waits_for_the_interval(tmp_path: Path) -> None:
    """Two files wait, and an epoch takes one. Of short intervals `test_seamark_run.py` tells."""
    files(tmp_path, [0, 1])
    job, rows = a_job(tmp_path, ending="never", interval="10000h")
    job.sink(rows, to_sqlite(tmp_path), "out")

    def stop() -> None:
        time.sleep(3)
        job.stop()

    meanwhile(lambda: job._run and job._run.coordinator and history(job), stop)
    job.run()
    assert [e.epoch for e in history(job)] == [0]
    assert ids(tmp_path) == [0]


def test_two_concurrent_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit ends a second after the next epoch is stored. Of one at a time `test_job.py`
    tells."""
    files(tmp_path, list(range(4)))
    job, rows = a_job(tmp_path, max_concurrent_checkpoints=2)
    job.sink(rows, SlowFileSink(str(tmp_path / "out")), "out")

    def next_is_stored(epoch: int) -> bool:
        return epoch == 3 or coordinator_of(job).last_stored > epoch

    monkeypatch.setattr(SlowFileSink, "may_commit", next_is_stored, raising=False)
    job.run()
    epochs = history(job)
    overlaps = [b.stored_s < a.committed_s for a, b in itertools.pairwise(epochs)]
    assert all(overlaps), "an epoch was not stored while the one before was being committed"
    for first, _, third in zip(epochs, epochs[1:], epochs[2:], strict=False):
        assert third.stored_s > first.committed_s, "three stored epochs were uncommitted at once"


def test_a_pause_between_two_epochs(tmp_path: Path) -> None:
    files(tmp_path, list(range(3)))
    job, rows = a_job(tmp_path, min_pause="1s")
    job.sink(rows, to_sqlite(tmp_path), "out")
    job.run()
    epochs = history(job)
    assert len(epochs) == 3
    for before, after in itertools.pairwise(epochs):
        assert after.started_s - before.committed_s >= 1.0
    assert ids(tmp_path) == [0, 1, 2]


def test_only_so_many_checkpoints_are_retained(tmp_path: Path) -> None:
    epochs = LEAST_RECORDS + 4
    files(tmp_path, list(range(epochs)))
    job, rows = a_job(tmp_path, num_retained=3)
    job.sink(rows, to_sqlite(tmp_path), "out")
    job.run()
    store = tmp_path / "store/job"

    def kept(directory: str) -> list[int]:
        return sorted(int(p.name) for p in (store / directory).iterdir() if p.name.isdigit())

    committed = sorted(int(p.parent.name) for p in store.glob("epochs/*/committed.json"))
    assert committed == list(range(epochs - LEAST_RECORDS, epochs))
    for log in ("spark/commits", "spark/offsets"):
        assert kept(log)[-1] == epochs - 1
        # Spark deletes in the background, after the epoch making room.
        assert 3 <= len(kept(log)) <= 3 + 2, f"{log}: {kept(log)}"
    files(tmp_path, [epochs])
    job, rows = a_job(tmp_path, num_retained=3)
    job.sink(rows, to_sqlite(tmp_path), "out")
    job.run()
    assert ids(tmp_path) == list(range(epochs + 1)), "what is retained is not enough to go on"


def test_as_many_checkpoints_of_a_file_source_are_retained(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Spark deletes a file source's log by the setting of the DataFrame's session, not of the
    query: a restore of an older retained checkpoint found it damaged."""
    epochs = 12
    files(tmp_path, list(range(epochs)))
    of_session = {
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.fileSource.log.compactInterval": "3",
        "spark.sql.streaming.fileSource.log.cleanupDelay": "1",
    }
    for key, value in of_session.items():
        spark.conf.set(key, value)
    try:
        job, rows = a_job(tmp_path, num_retained=epochs)
        job.sink(rows, to_sqlite(tmp_path), "out")
        job.run()
        assert spark.conf.get("spark.sql.streaming.minBatchesToRetain") == "2"
    finally:
        for key in of_session:
            spark.conf.unset(key)
    store = open_store(partial(open_files, spark, make=False), (tmp_path / "store/job").as_uri())
    problems = {epoch: inspect(store, epoch).problems for epoch in range(epochs)}
    assert problems == {epoch: [] for epoch in range(epochs)}

    spark_files = tmp_path / "store/job/spark"
    for gone, said in (
        ("offsets/2", "The newest complete checkpoint is that of epoch 1; restore it under"),
        ("commits/0", "The newest complete checkpoint is that of epoch 1; restore it under"),
        ("commits/1", "No earlier checkpoint of this job is complete, but that of epoch 4 is: "),
    ):
        (spark_files / gone).unlink()
        assert said in str(damaged(store, 2, inspect(store, 2).problems))


def test_a_cancelled_job_ends_at_once_and_keeps_or_deletes_its_checkpoints(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Row 1 sleeps: the epoch with it is never committed."""
    files(tmp_path, [0])
    asleep = tmp_path / "asleep"

    @F.udf("bigint")
    def slow(id_: int) -> int:
        if id_ == 1:
            asleep.touch()
            time.sleep(300)
        return id_

    store = tmp_path / "store/job"

    def run(retention: str, until: Callable[[], Any]) -> float:
        job, rows = a_job(
            tmp_path, ending="never", interval="100ms", externalized_retention=retention
        )
        job.sink(rows.select(slow("id").alias("id")), to_sqlite(tmp_path), "out")
        cancelled_s: list[float] = []

        def cancel() -> None:
            cancelled_s.append(time.monotonic())
            job.cancel()

        meanwhile(until, cancel)
        job.run()
        return time.monotonic() - cancelled_s[0]

    run("RETAIN_ON_CANCELLATION", lambda: (store / "epochs/0/committed.json").exists())
    assert (store / "spark/commits/0").exists()
    files(tmp_path, [1])
    took_s = run("DELETE_ON_CANCELLATION", asleep.exists)
    assert took_s < 60, "the epoch under way was waited for"
    assert not store.exists()
    assert ids(tmp_path) == [0], "the epoch under way was committed, or epoch 0 came again"
    assert not [p for p in (tmp_path / "out.db.seamark").rglob("*") if p.is_file()]


def test_a_cancelled_job_keeps_the_checkpoints_that_a_newer_driver_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is idle, so nothing else tells it of the other one."""
    files(tmp_path, [0])
    job, rows = a_job(
        tmp_path, ending="never", interval="1h", externalized_retention="DELETE_ON_CANCELLATION"
    )
    job.sink(rows, to_sqlite(tmp_path), "out")
    store = tmp_path / "store/job"

    def cancel() -> None:
        shutil.copy(store / "lease/1.json", store / "lease/2.json")
        job.cancel()

    meanwhile((store / "epochs/0/committed.json").exists, cancel)
    job.run()
    assert (store / "spark/commits/0").exists()
    assert "is kept: driver generation 1 was superseded by generation 2" in caplog.text


def windows_into_sqlite(tmp_path: Path, **settings: Any) -> list[int]:
    """Run windows of ten seconds to the sources' end; return the starts of those written."""
    job, rows = a_job(tmp_path, **settings)
    windows = (
        rows.select(F.timestamp_seconds("id").alias("time"))
        .withWatermark("time", "1 second")
        .groupBy(F.window("time", "10 seconds"))
        .count()
        .select(F.unix_seconds("window.start").alias("id"))
    )
    job.sink(windows, to_sqlite(tmp_path), "out")
    job.run()
    store = tmp_path / "store/job"
    committed = len(list(store.glob("epochs/*/committed.json")))
    assert committed == len(list(store.glob("spark/commits/[0-9]*"))), "an epoch is left open"
    return ids(tmp_path)


def test_a_bounded_job_ends_with_a_checkpoint_of_what_its_last_rows_changed(
    tmp_path: Path,
) -> None:
    """The last row (second 100) closes the first window. Without the final checkpoint a later run
    closes it: nothing is lost, it comes later."""
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
        files(tmp_path / name, [0, 100])
    assert windows_into_sqlite(tmp_path / "with") == [0]
    without = {"checkpoints_after_tasks_finish": False}
    assert windows_into_sqlite(tmp_path / "without", **without) == []
    files(tmp_path / "without", [101])
    assert windows_into_sqlite(tmp_path / "without", **without) == [0]


def test_a_start_closes_what_was_due_at_the_last_end(tmp_path: Path) -> None:
    """A run that ends between the epoch that raises the watermark and the one without rows behind
    it is played by one without a final checkpoint. No row comes afterwards."""
    files(tmp_path, [0, 100])
    assert windows_into_sqlite(tmp_path, checkpoints_after_tasks_finish=False) == []
    assert windows_into_sqlite(tmp_path) == [0]
    offsets = tmp_path / "store/job/spark/offsets"
    assert windows_into_sqlite(tmp_path) == [0]
    assert not (offsets / "3").exists(), "nothing was due, and an epoch was planned"

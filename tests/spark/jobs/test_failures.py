"""How: real queries into SQLite fail at chosen places, and go on or give up in the same driver. The
tasks themselves leave the failures, and their times, in files; results are read with SQL.

A failure costs a restart, so each test makes as few as show its point.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.job_run import JobRun
from seamark.model.errors import (
    CommitFailedError,
    PreflightError,
    TooManyFailedCheckpointsError,
)
from seamark.run.failures import CheckpointFailureReason
from seamark.run.query import StreamRun
from tests.chaos.driver import wait_until
from tests.threads import RunningJob, meanwhile

SECRET = "s3cr3t-of-the-sink"
ATTEMPTS = 4
"""How often Spark tries a task before the epoch fails."""


def files(tmp_path: Path, count: int, rows: int = 5) -> None:
    (tmp_path / "in").mkdir()
    for number in range(count):
        lines = [json.dumps({"id": number * rows + i}) for i in range(rows)]
        file = tmp_path / f"in/{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (number + 1, number + 1))  # Spark takes older files first


def bounded_job(
    tmp_path: Path, files_an_epoch: int = 1, **settings: Any
) -> tuple[sm.Job, DataFrame]:
    checkpoint = sm.CheckpointConfig(storage=str(tmp_path / "store"), **settings)
    job = sm.Job("job", checkpoint)
    source = sm.FileSource(
        str(tmp_path / "in"),
        format="json",
        schema="id BIGINT",
        ending="latest",
        options={"maxFilesPerTrigger": str(files_an_epoch)},
    )
    return job, job.source(source, "in")


def count(
    tmp_path: Path, sql: str = "SELECT count(*), count(DISTINCT id) FROM t"
) -> tuple[int, ...]:
    with sqlite3.connect(tmp_path / "out.db") as connection:
        found: tuple[int, ...] = connection.execute(sql).fetchone()
        return found


def open_transactions(tmp_path: Path) -> list[Path]:
    return [p for p in (tmp_path / "out.db.seamark").rglob("*") if p.is_file()]


@pytest.mark.parametrize("form", ["join", "subquery"])
def test_a_restart_finds_the_new_files_of_a_static_table(
    tmp_path: Path, spark: SparkSession, form: str
) -> None:
    """A table overwritten each night ended a job: each restart looked for the old files."""
    files(tmp_path, 1)
    ids = str(tmp_path / "ids")
    spark.range(9).write.parquet(ids)
    strategy = sm.RestartStrategy.fixed_delay(attempts=1, delay="0s")
    job, rows = bounded_job(tmp_path, restart_strategy=strategy)
    static = spark.read.parquet(ids)
    if form == "join":
        rows = rows.join(static, "id")
    else:
        static.createOrReplaceTempView("static_ids")
        rows = rows.where("id IN (SELECT id FROM static_ids)")
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), table="t"), "out")
    spark.range(3).write.mode("overwrite").parquet(ids)
    job.run()
    assert count(tmp_path) == (3, 3)


class RefusingSink(sm.SQLiteSink):
    """Refuses a row with its id in `refused` as many times; each time leaves a line in `log`."""

    def __init__(self, path: str, table: str, log: Path, refused: dict[int, int]) -> None:
        super().__init__(path, table=table)
        self.log = log
        self.refused = refused
        self.password = SECRET

    def create_writer(self, context: Any) -> Any:
        return RefusingWriter(super().create_writer(context), self.log, self.refused)


class RefusingWriter:
    def __init__(self, writer: Any, log: Path, refused: dict[int, int]) -> None:
        self._writer = writer
        self._log = log
        self._refused = refused

    def write(self, batch: Any) -> None:
        for id_ in batch.column("id").to_pylist():
            if id_ in self._refused:
                before = self._log.read_text().split() if self._log.exists() else []
                if before.count(str(id_)) < self._refused[id_]:
                    with self._log.open("a") as log:
                        log.write(f"{id_}\n")
                    raise OSError(f"no room for row {id_}, {SECRET} says")
        self._writer.write(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class AwaySink(sm.SQLiteSink):
    """Its system does not answer the driver while `AWAY` is set; the first commit ends the run."""

    def create_committer(self, context: Any) -> Any:
        return AwayCommitter(super().create_committer(context))


AWAY = threading.Event()


class AwayCommitter:
    commits = 0

    def __init__(self, committer: Any) -> None:
        self._committer = committer

    def commit(self, committables: Any) -> Any:
        AwayCommitter.commits += 1
        if AWAY.is_set():
            raise CommitFailedError("gone") if self.commits == 1 else ConnectionError("away")
        return self._committer.commit(committables)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)


def supervisor(job: sm.Job) -> Any:
    return job._run.supervisor


def test_failed_checkpoints_are_tolerated_and_a_success_begins_the_count_anew(
    tmp_path: Path,
) -> None:
    files(tmp_path, 3)
    job, rows = bounded_job(tmp_path, tolerable_failed_checkpoints=1)
    refused = {0: ATTEMPTS, 10: ATTEMPTS}  # epochs 0 and 2 fail once each, epoch 1 does not
    job.sink(rows, RefusingSink(str(tmp_path / "out.db"), "t", tmp_path / "log", refused), "out")
    job.run()
    failed = supervisor(job).failed_checkpoints
    assert [(f.epoch, f.reason) for f in failed] == [
        (0, CheckpointFailureReason.PRE_COMMIT),
        (2, CheckpointFailureReason.PRE_COMMIT),
    ]
    assert "sink 'out': OSError: no room for row 10" in failed[1].message
    shown = job.checkpoints()
    assert [(c.id, c.status.value) for c in shown.history] == [
        (2, "COMPLETED"), (2, "FAILED"), (1, "COMPLETED"), (0, "COMPLETED"), (0, "FAILED"),
    ]  # fmt: skip
    assert shown.history[1].failure_message == failed[1].message
    assert (shown.counts.completed, shown.counts.failed, shown.counts.restored) == (3, 2, 1)
    assert supervisor(job).restarts == 0, "a tolerated failure used up the restart strategy"
    assert count(tmp_path) == (15, 15)
    assert open_transactions(tmp_path) == []


def test_the_queries_before_a_restart_are_collected(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that restarts for days would fill the driver's heap otherwise, and its open files."""
    files(tmp_path, 2)
    job, rows = bounded_job(tmp_path, tolerable_failed_checkpoints=1)
    refused = {0: ATTEMPTS, 5: ATTEMPTS}
    job.sink(rows, RefusingSink(str(tmp_path / "out.db"), "t", tmp_path / "log", refused), "out")
    queries: list[Any] = []
    start = StreamRun.start

    def noting(run: StreamRun) -> None:
        start(run)
        assert run.query is not None
        query = run.query._jsq.streamingQuery()
        queries.append(spark._jvm.java.lang.ref.WeakReference(query))

    monkeypatch.setattr(StreamRun, "start", noting)
    threads: set[threading.Thread] = set()
    run_epoch = StreamRun._run_epoch

    def noting_its_thread(run: StreamRun, *args: Any) -> None:
        threads.add(threading.current_thread())
        run_epoch(run, *args)

    monkeypatch.setattr(StreamRun, "_run_epoch", noting_its_thread)
    job.run()
    assert len(queries) == 3
    assert len(threads) == 3
    wait_until(
        "Java's threads have no connections",
        lambda: not any(thread.is_alive() for thread in threads),
        30,
    )

    def collected(count: int) -> bool:
        gc.collect()
        spark._jvm.java.lang.System.gc()
        return not any(query.get() for query in queries[:count])

    wait_until("the failed queries are collected", lambda: collected(2), 30)
    del job, rows
    wait_until("the job's last query is collected", lambda: collected(3), 30)


def test_one_failure_more_than_tolerable_fails_the_job_and_failure_rate_gives_up(
    tmp_path: Path,
) -> None:
    files(tmp_path, 2)
    job, rows = bounded_job(
        tmp_path,
        tolerable_failed_checkpoints=1,
        restart_strategy=sm.RestartStrategy.failure_rate(
            max_failures_per_interval=1, failure_rate_interval="1h", delay="10ms"
        ),
    )
    refused = {5: 1000}
    job.sink(rows, RefusingSink(str(tmp_path / "out.db"), "t", tmp_path / "log", refused), "out")
    with pytest.raises(TooManyFailedCheckpointsError) as raised:
        job.run()
    message = str(raised.value)
    assert "2 checkpoints failed one after another" in message
    told = "epoch 1, PRE_COMMIT: sink 'out': OSError: no room for row 5, *** says"
    assert message.count(told) == 2
    assert SECRET not in f"{raised.value.__cause__}", "Spark, and its log, got to know the secret"
    assert supervisor(job).restarts == 1
    assert len(supervisor(job).failed_checkpoints) == 4, "a restarted job tolerates anew"
    assert count(tmp_path) == (5, 5), "the epoch before the failing one stays committed"
    assert open_transactions(tmp_path) == []


def test_an_epoch_that_runs_into_the_timeout_is_aborted_and_runs_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Two files make two tasks of epoch 0: one flushes its rows, the other sleeps in its UDF. So it
    goes until an epoch has expired with flushed rows."""
    files(tmp_path, 2)
    enough = tmp_path / "enough"
    job, rows = bounded_job(
        tmp_path, files_an_epoch=2, timeout="8s", tolerable_failed_checkpoints=10
    )

    @F.udf("bigint")
    def slow(id_: int) -> int:
        if id_ == 5 and not enough.exists():
            time.sleep(300)
        return id_

    job.sink(
        rows.select(slow("id").alias("id")), sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out"
    )
    flushed: list[Path] = []

    def watch() -> None:
        while not flushed:
            flushed.extend(open_transactions(tmp_path))
            time.sleep(0.05)
        before = len(supervisor(job).failed_checkpoints)
        while len(supervisor(job).failed_checkpoints) == before:
            time.sleep(0.05)
        enough.touch()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    begun = time.monotonic()
    job.run()
    assert time.monotonic() - begun < 300, "the sleeping task was waited for"
    failed = supervisor(job).failed_checkpoints
    assert {(f.epoch, f.reason) for f in failed} == {(0, CheckpointFailureReason.EXPIRED)}
    assert "not decided within 8 s" in failed[0].message
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []
    watching.join(60)
    assert not watching.is_alive(), "no epoch expired after its rows were flushed"
    aborted = count(tmp_path, "SELECT count(*) FROM _seamark_ledger WHERE outcome = 'aborted'")
    assert flushed, "no transaction was open when the epoch expired"
    assert aborted[0] >= 1, "the flushed rows of the expired epoch were not aborted"
    assert count(tmp_path) == (10, 10)
    assert open_transactions(tmp_path) == []


def failing_udf(log: Path, failures: int) -> Any:
    """Return a UDF; it raises in as many epochs; each call leaves its time in `log`."""

    @F.udf("bigint")
    def failing(id_: int) -> int:
        calls = log.read_text().count("\n") if log.exists() else 0
        if id_ == 0 and calls < failures * ATTEMPTS:
            with log.open("a") as file:
                file.write(f"{time.monotonic()}\n")
            raise ValueError("the user's own mistake")
        return id_

    return failing


def test_a_failing_job_is_restarted_with_growing_delays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files(tmp_path, 1)
    job, rows = bounded_job(
        tmp_path,
        tolerable_failed_checkpoints=5,
        restart_strategy=sm.RestartStrategy.exponential_delay(
            initial_backoff="200ms", backoff_multiplier=4, jitter_factor=0
        ),
    )
    frame = rows.select(failing_udf(tmp_path / "log", 2)("id").alias("id"))
    job.sink(frame, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")
    with caplog.at_level(logging.WARNING, "seamark.run.supervision"):
        job.run()
    assert supervisor(job).restarts == 2
    assert supervisor(job).failed_checkpoints == [], "a UDF's error is no failure of a checkpoint"
    delays = [r.getMessage() for r in caplog.records if "; restart " in r.getMessage()]
    assert "the user's own mistake; restart 1 in 0.2 s" in delays[0]
    assert "restart 2 in 0.8 s" in delays[1]
    calls_s = [float(line) for line in (tmp_path / "log").read_text().split()]
    assert calls_s[ATTEMPTS] - calls_s[ATTEMPTS - 1] >= 0.2
    assert count(tmp_path) == (5, 5)


def test_fixed_delay_restarts_once_and_the_next_failure_ends_the_job_which_keeps_its_checkpoints(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 0 fails once and row 5 always, so the restart succeeds and epoch 1's failure is one too
    many. In Flink as here ``DELETE_ON_CANCELLATION`` deletes nothing of a failed job."""
    files(tmp_path, 2)
    job, rows = bounded_job(
        tmp_path,
        restart_strategy=sm.RestartStrategy.fixed_delay(attempts=1, delay="300ms"),
        externalized_retention="DELETE_ON_CANCELLATION",
    )
    once = tmp_path / "once"

    @F.udf("bigint")
    def failing(id_: int) -> int:
        tries = once.read_text().count("\n") if once.exists() else 0
        if id_ == 0 and tries < ATTEMPTS:
            with once.open("a") as file:
                file.write("\n")
            raise ValueError("fails once")
        if id_ == 5:
            raise ValueError("fails always")
        return id_

    frame = rows.select(failing("id").alias("id"))
    job.sink(frame, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")
    with (
        caplog.at_level(logging.WARNING, "seamark.run.supervision"),
        pytest.raises(StreamingQueryException, match="fails always"),
    ):
        job.run()
    assert supervisor(job).restarts == 1
    said = [r.getMessage() for r in caplog.records if r.name == "seamark.run.supervision"]
    assert "fails once; restart 1 in 0.3 s (RestartStrategy.fixed_delay(" in said[0]
    assert said[1].startswith("job job fails after 1 restarts (RestartStrategy.fixed_delay(")
    assert count(tmp_path) == (5, 5), "the epoch that the restart committed"
    assert open_transactions(tmp_path) == []
    assert (tmp_path / "store/job/epochs/0/committed.json").exists()
    assert (tmp_path / "store/job/spark/commits/0").exists()


def test_a_job_is_stopped_in_the_delay_before_a_restart(tmp_path: Path) -> None:
    files(tmp_path, 1)
    job, rows = bounded_job(
        tmp_path, restart_strategy=sm.RestartStrategy.fixed_delay(attempts=3, delay="1h")
    )
    frame = rows.select(failing_udf(tmp_path / "log", 9)("id").alias("id"))
    job.sink(frame, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")

    meanwhile(lambda: job._run and job._run.supervisor.restarts, job.stop)
    job.run()
    assert supervisor(job).restarts == 1
    assert open_transactions(tmp_path) == []


def test_a_job_is_stopped_while_a_restart_makes_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recovery of that run, of a system that is away, does not get its ten minutes."""
    files(tmp_path, 2)
    strategy = sm.RestartStrategy.fixed_delay(attempts=1, delay="100ms")

    def declared() -> sm.Job:
        job, rows = bounded_job(tmp_path, restart_strategy=strategy)
        job.sink(rows, AwaySink(str(tmp_path / "out.db"), table="t"), "out")
        return job

    def stopped_while_made(run: JobRun) -> StreamRun:
        made = new_run(run)
        if run.supervisor.restarts:
            run.supervisor.stop()
        return made

    new_run = JobRun._new_run
    AWAY.set()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(JobRun, "_new_run", stopped_while_made)
            job = declared()
            running = RunningJob(job)
            wait_until("a restart", lambda: job._run and supervisor(job).restarts, 120)
            begun = time.monotonic()
            wait_until("the end", lambda: supervisor(job).end is not None, 60)
    finally:
        AWAY.clear()
    running.join()
    assert time.monotonic() - begun < 30
    declared().run()
    assert count(tmp_path) == (10, 10)


def test_what_a_user_must_mend_is_not_restarted(tmp_path: Path) -> None:
    files(tmp_path, 1)
    job, rows = bounded_job(
        tmp_path, restart_strategy=sm.RestartStrategy.fixed_delay(attempts=3, delay="1h")
    )
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "nowhere/out.db"), "t"), "out")
    with pytest.raises(PreflightError, match="does not exist"):
        job.run()
    assert supervisor(job).restarts == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("a full disk needs a small file system of its own: run as root")
    yield disk
    subprocess.run(["chattr", "-R", "-i", str(disk)], capture_output=True, check=False)
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_job_goes_on_when_a_full_disk_has_room_and_may_be_written_again(
    tmp_path: Path, small_disk: Path, spark: SparkSession
) -> None:
    """Epoch 1's task fills the disk of the checkpoints; then, in epoch 2, the directory of Spark's
    decisions is made immutable: not even root may write there. Each is mended after two failures.
    The restart strategy has one attempt only: tolerated failures do not use it up."""
    files(tmp_path, 3)
    store, ballast = small_disk / "store", small_disk / "ballast"
    commits = store / "job/spark/commits"
    checkpoint = sm.CheckpointConfig(
        storage=str(store),
        tolerable_failed_checkpoints=100,
        min_pause="200ms",
        restart_strategy=sm.RestartStrategy.fixed_delay(attempts=1, delay="10ms"),
    )
    job = sm.Job("job", checkpoint)
    source = sm.FileSource(
        str(tmp_path / "in"),
        format="json",
        schema="id BIGINT",
        ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )
    once = tmp_path / "once"

    @F.udf("bigint")
    def breaking(id_: int) -> int:
        done = Path(f"{once}{id_}")
        if id_ == 5 and not done.exists():
            done.touch()
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1000))
        if id_ == 10 and not done.exists():
            done.touch()
            subprocess.run(["chattr", "+i", str(commits)], check=True)
        return id_

    rows = job.source(source, "in")
    frame = rows.select(breaking("id").alias("id"))
    job.sink(frame, sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")

    def failed_times(number: int) -> bool:
        return job._run is not None and len(job._run.supervisor.failed_checkpoints) >= number

    undo = ["chattr", "-i", str(commits)]
    meanwhile(lambda: failed_times(2), ballast.unlink)
    meanwhile(lambda: failed_times(4), lambda: subprocess.run(undo, check=True))
    job.run()
    failed = supervisor(job).failed_checkpoints
    assert {f.reason for f in failed} == {CheckpointFailureReason.STORAGE}
    assert "No space left on device" in failed[0].message
    assert any("Operation not permitted" in f.message for f in failed)
    assert supervisor(job).restarts == 0
    assert count(tmp_path) == (15, 15), "rows were lost or doubled"
    assert open_transactions(tmp_path) == []


def test_at_most_once_skips_an_epoch_that_failed_also_in_a_query_with_state(
    tmp_path: Path,
) -> None:
    files(tmp_path, 3)
    job, rows = bounded_job(tmp_path, tolerable_failed_checkpoints=1, mode="at-most-once")
    sink = RefusingSink(str(tmp_path / "out.db"), "t", tmp_path / "log", {5: ATTEMPTS})
    job.sink(rows.dropDuplicates(["id"]), sink, "out")
    job.run()
    assert count(tmp_path) == (10, 10)
    assert count(tmp_path, "SELECT count(*) FROM t WHERE id BETWEEN 5 AND 9") == (0,)
    assert open_transactions(tmp_path) == []


def test_a_target_put_back_from_a_backup_is_told_at_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It lacks epochs that the job has committed, and the job went on without a word."""
    target, backup = tmp_path / "out.db", tmp_path / "backup.db"
    files(tmp_path, 3)

    def warnings() -> list[str]:
        caplog.clear()
        job, rows = bounded_job(tmp_path)
        job.sink(rows, sm.SQLiteSink(str(target), table="t"), "out")
        job.run()
        return [text for text in caplog.messages if "has no record of epoch" in text]

    assert warnings() == []
    shutil.copy(target, backup)
    for number in (3, 4):
        assert warnings() == []
        (tmp_path / f"in/{number}.json").write_text(json.dumps({"id": number}))
    assert warnings() == []
    shutil.copy(backup, target)
    (warning,) = warnings()
    assert warning.startswith("sink out: its system has no record of epoch 4 any more")


def test_a_savepoint_onto_a_full_disk_names_it_and_the_job_goes_on(
    tmp_path: Path, small_disk: Path, spark: SparkSession
) -> None:
    with (small_disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1000))
    rows = spark.readStream.format("rate").load().selectExpr("value AS id")
    writer = sm.write_stream(rows).format("json").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "location")).start()
    refused = query.job.savepoint(str(small_disk / "saved"))
    with pytest.raises(sm.SavepointError, match=r"disk/saved/.* cannot be written: .*has room"):
        refused.result(300)
    query.processAllAvailable()
    assert query.isActive
    query.stop()
    assert not (small_disk / "saved").exists() or not [*(small_disk / "saved").iterdir()]

"""How: a real session and real sinks; a mistake in every argument, then bounded runs; their sinks
are read with plain SQL and Spark's own reader."""

from __future__ import annotations

import itertools
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.checkpoint.coordinator import Coordinator
from seamark.model.errors import CheckpointError, ConfigurationError
from seamark.spark.session import spark_session
from tests.chaos.driver import wait_until
from tests.every_change import SQLiteChanges


def config(tmp_path: Path, **settings: Any) -> sm.CheckpointConfig:
    return sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="100ms", **settings)


def clicks(tmp_path: Path, rows: int, first: int = 0) -> str:
    directory = tmp_path / "in"
    directory.mkdir(exist_ok=True)
    lines = [json.dumps({"id": i, "page": f"p{i % 3}"}) for i in range(first, first + rows)]
    (directory / f"{first}.json").write_text("\n".join(lines))
    return str(directory)


def read(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


# --- mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"storage": ""}, "storage is ''"),
        ({"storage": None}, "storage is None"),
        ({"storage": "file://var/lib"}, "file:///var/lib"),
        ({"storage": "/s", "interval": "5 parsecs"}, "interval: '5 parsecs' is not a duration"),
        ({"storage": "/s", "interval": -1}, "interval: -1"),
        ({"storage": "/s", "mode": "twice"}, "mode is 'twice'; allowed are 'exactly-once'"),
    ],
)
def test_a_bad_checkpoint_setting_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        sm.CheckpointConfig(**settings)


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a" * 129, "ü", None, 7])
def test_a_bad_job_name_is_refused(tmp_path: Path, name: Any) -> None:
    with pytest.raises(ConfigurationError, match="Job: name is"):
        sm.Job(name, config(tmp_path))


def test_mistakes_in_a_declaration(tmp_path: Path, spark: SparkSession, rate: DataFrame) -> None:
    with pytest.raises(ConfigurationError, match="output_mode is 'upsert'"):
        sm.Job("j", config(tmp_path), output_mode="upsert")
    with pytest.raises(ConfigurationError, match="checkpoint is None"):
        sm.Job("j", None)  # type: ignore[arg-type]
    job = sm.Job("j", config(tmp_path))
    sink = sm.FileSink(str(tmp_path / "out"))
    uses: list[Callable[[], object]] = [
        job.run,
        lambda: job.new_savepoint(tmp_path / "savepoint", {}),
        lambda: job.restore_plan(str(tmp_path / "savepoint")),
    ]
    with pytest.raises(ConfigurationError, match="say whether the stream can be read again"):
        job.source(rate, "r")
    with pytest.raises(ConfigurationError, match="not streaming"):
        job.source(spark.range(3), "r", replayable=True)
    with pytest.raises(ConfigurationError, match=r"give a sm\.…Source"):
        job.source("topic", "r")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="streaming DataFrame, found str"):
        job.sink("rows", sink, "s")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"give a sm\.…Sink"):
        job.sink(rate, "orders", "s")  # type: ignore[arg-type]
    with pytest.raises(
        ConfigurationError, match=r"'s' is the class FileSink; make one: FileSink\(…\)"
    ):
        job.sink(rate, sm.FileSink, "s")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"dead_letters is the class FileSink; make one"):
        job.sink(rate, sink, "s", dead_letters=sm.FileSink)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"'r' is the class KafkaSource; make one: Kafk"):
        job.source(sm.KafkaSource, "r")  # type: ignore[arg-type]
    for use in uses:
        with pytest.raises(ConfigurationError, match="has no sink"):
            use()
    job.sink(rate, sink, "s")
    with pytest.raises(ConfigurationError, match="uid 's' is given to an operator, but a sink"):
        job.uid(rate, "s")
    for use in uses:
        with pytest.raises(ConfigurationError, match="has no source"):
            use()
    assert not (tmp_path / "store").exists(), "nothing may be touched before the job is whole"


def test_a_directory_of_another_job_is_refused(tmp_path: Path) -> None:
    source = sm.FileSource(
        clicks(tmp_path, 5), format="json", schema="id BIGINT, page STRING", ending="latest"
    )
    job = sm.Job("first", config(tmp_path))
    job.sink(job.source(source, "in"), sm.FileSink(str(tmp_path / "out")), "out")
    job.run()
    (tmp_path / "store" / "first").rename(tmp_path / "store" / "second")
    other = sm.Job("second", config(tmp_path))
    other.sink(other.source(source, "in"), sm.FileSink(str(tmp_path / "out")), "out")
    with pytest.raises(CheckpointError, match="of job 'first', not of 'second'"):
        other.run()


# --- runs


def bounded_job(tmp_path: Path, **settings: Any) -> sm.Job:
    """Three sinks: two share a DataFrame, the third has an aggregation of its own."""
    job = sm.Job("clicks", config(tmp_path, **settings), output_mode="update")
    source = sm.FileSource(
        str(tmp_path / "in"),
        format="json",
        schema="id BIGINT, page STRING",
        ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )
    rows = job.source(source, "in")
    counts = rows.groupBy("page").count()
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), table="raw"), "raw")
    job.sink(rows, sm.FileSink(str(tmp_path / "out")), "files")
    job.sink(counts, SQLiteChanges(str(tmp_path / "out.db"), table="counts"), "counts")
    return job


def test_a_bounded_job_ends_by_itself_with_everything_committed(
    tmp_path: Path, spark: SparkSession
) -> None:
    for part in range(3):
        clicks(tmp_path, 100, first=part * 100)
    bounded_job(tmp_path).run()
    assert read(tmp_path / "out.db", "SELECT count(*), count(DISTINCT id) FROM raw") == [(300, 300)]
    files = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(r.id for r in files.collect()) == list(range(300))
    final = read(tmp_path / "out.db", "SELECT page, max(count) FROM counts GROUP BY page")
    assert sorted(final) == [("p0", 100), ("p1", 100), ("p2", 100)]


def test_a_driver_that_died_while_it_wrote_the_first_plan_can_be_followed(tmp_path: Path) -> None:
    clicks(tmp_path, 100)
    offsets = tmp_path / "store/clicks/spark/offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.4711.tmp").touch()  # the rest of it: Spark alone refuses this directory
    bounded_job(tmp_path).run()
    assert read(tmp_path / "out.db", "SELECT count(*), count(DISTINCT id) FROM raw") == [(100, 100)]


def test_a_job_run_again_goes_on_after_its_last_epoch(tmp_path: Path) -> None:
    clicks(tmp_path, 100)
    bounded_job(tmp_path).run()
    bounded_job(tmp_path).run()
    clicks(tmp_path, 50, first=100)
    bounded_job(tmp_path).run()
    assert read(tmp_path / "out.db", "SELECT count(*), count(DISTINCT id) FROM raw") == [(150, 150)]
    generations = [p.name for p in (tmp_path / "store/clicks/lease").iterdir()]
    assert generations == ["3.json"]


def test_a_job_that_fails_tells_what_sparks_query_met(tmp_path: Path) -> None:
    clicks(tmp_path, 10)
    job = sm.Job("fails", config(tmp_path))
    source = sm.FileSource(
        str(tmp_path / "in"), format="json", schema="id BIGINT, page STRING", ending="latest"
    )
    rows = job.source(source, "in").withColumn("bad", F.expr("string(raise_error('gone'))"))
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), table="raw"), "raw")
    with pytest.raises(Exception, match="gone"):
        job.run()
    stage = tmp_path / "out.db.seamark"
    assert not [p for p in stage.rglob("*") if p.is_file()], "a failed epoch left a stage file"
    failed = job.checkpoints().latest_failed
    assert failed is not None
    assert (failed.id, failed.num_acknowledged_subtasks) == (0, 0)
    assert "gone" in failed.failure_message


LATE = "transaction timeout 900s is not above checkpoint interval 0.1s . timeout %ds . restart"


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, "no broker answers"),
        ({"mode": "at-least-once", "timeout": "1h"}, "no broker answers"),  # committed at the flush
        ({"timeout": "1h"}, LATE % 3600),
        ({"restart_strategy": sm.RestartStrategy.fixed_delay(delay="5min")}, LATE % 600),
    ],
)
def test_a_job_whose_kafka_transactions_would_not_outlive_an_epoch_is_refused(
    tmp_path: Path, settings: dict[str, Any], refused: str
) -> None:
    """Before anything is asked of the broker; the default settings get as far."""
    job = sm.Job("late", config(tmp_path, **settings))
    rows = job.source(sm.DatagenSource(rows_per_second=10, number_of_rows=10), "in")
    sink = sm.KafkaSink("localhost:1", topic="t", transactional_id_prefix="p", value_format="json")
    job.sink(rows, sink, "orders")
    with pytest.raises((ConfigurationError, sm.PreflightError), match=refused):
        job.run()


# --- overlap


class SlowCommitter:
    """Another committer, a second late: that long after `may_commit` holds for the commit's
    number."""

    def __init__(self, committer: Any, may_commit: Callable[[int], bool]) -> None:
        self._committer = committer
        self._may_commit = may_commit
        self._numbers = itertools.count()

    def commit(self, committables: Any) -> Any:
        number = next(self._numbers)
        wait_until("what the commit waits for", lambda: self._may_commit(number), 120)
        time.sleep(1.0)
        return self._committer.commit(committables)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._committer, name)


class SlowFileSink(sm.FileSink):
    may_commit: ClassVar[Callable[[int], bool]]

    def create_committer(self, context: Any) -> Any:
        return SlowCommitter(super().create_committer(context), type(self).may_commit)


def coordinator_of(job: sm.Job) -> Coordinator:
    assert job._run is not None and job._run.coordinator is not None
    return job._run.coordinator


def test_an_epoch_is_committed_while_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in range(4):
        clicks(tmp_path, 10, first=part * 10)
    job = sm.Job("slow", config(tmp_path))
    source = sm.FileSource(
        str(tmp_path / "in"),
        format="json",
        schema="id BIGINT, page STRING",
        ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )
    job.sink(job.source(source, "in"), SlowFileSink(str(tmp_path / "out")), "out")

    def next_has_begun(epoch: int) -> bool:
        return epoch == 3 or coordinator_of(job).failing_epoch > epoch

    monkeypatch.setattr(SlowFileSink, "may_commit", next_has_begun, raising=False)
    job.run()
    epochs = list(coordinator_of(job).history)
    assert [e.epoch for e in epochs] == [0, 1, 2, 3]
    for before, after in itertools.pairwise(epochs):
        assert after.started_s < before.committed_s, "the next epoch did not run meanwhile"
        assert after.stored_s > before.committed_s, "two stored epochs were uncommitted at once"


@pytest.mark.parametrize("sinks", [1, 2])
def test_columns_may_have_odd_names(tmp_path: Path, spark: SparkSession, sinks: int) -> None:
    job = sm.Job("odd", config(tmp_path))
    source = sm.FileSource(
        clicks(tmp_path, 5), format="json", schema="id BIGINT, page STRING", ending="latest"
    )
    frame = job.source(source, "in").select(F.col("id").alias("a.b"), F.col("page").alias("c`d e"))
    for number in range(sinks):
        job.sink(frame, sm.FileSink(str(tmp_path / f"out{number}")), f"out{number}")
    job.run()
    for number in range(sinks):
        rows = spark.read.parquet(str(tmp_path / f"out{number}"))
        assert rows.columns == ["a.b", "c`d e"]
        assert sorted(r[0] for r in rows.collect()) == [0, 1, 2, 3, 4]


def test_the_session_is_that_of_the_dataframe(spark: SparkSession) -> None:
    """Settings of a query made on another session would not reach it."""
    other = spark.newSession()
    assert spark_session("other", other.range(1)) is other
    assert spark_session("tests", spark.range(1)) is spark


def test_a_thread_without_a_session_changes_no_setting_of_the_one_that_is_there(
    spark: SparkSession,
) -> None:
    """As one that asks for a restore plan over HTTP, or declares a source."""
    key, made = "spark.sql.shuffle.partitions", []

    def in_a_thread() -> None:
        assert SparkSession.getActiveSession() is None
        made.append(spark_session("other"))

    before = spark.conf.get(key)
    spark.conf.set(key, "7")
    try:
        thread = threading.Thread(target=in_a_thread)
        thread.start()
        thread.join()
        assert spark.conf.get(key) == "7"
    finally:
        spark.conf.set(key, str(before))
    assert made == [spark]

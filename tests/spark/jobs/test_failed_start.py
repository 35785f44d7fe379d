"""A start that fails after the coordinator's start leaves nothing behind: no thread, no committer,
no open transaction, no query. The same program then starts the job again.

How: a real job into SQLite, whose start fails at each of the places between the coordinator's start
and its return in turn, by an error put there.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.errors import ConfigurationError
from seamark.run import query as queries
from seamark.run.checkpoint_trigger import CheckpointTrigger
from seamark.run.query import StreamRun
from seamark.run.start_checks import StartChecks
from seamark.sinks.sqlite.committer import SQLiteCommitter
from seamark.spark.state_backend import lent_settings
from tests.spark.jobs.test_failures import bounded_job, count, files, open_transactions

PLACES: dict[str, tuple[Any, str]] = {
    "checks": (StartChecks, "after"),
    "tasks": (queries, "EpochTasks"),
    "settings": (queries, "session_settings"),
    "query": (StreamRun, "_start_query"),
    "attach": (CheckpointTrigger, "attach"),
    "watch": (queries, "watch_stream"),
}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ours() -> set[str]:
    """The names of the threads of runs; calls and clocks have a pool and an end of their own."""
    kept = ("seamark-call", "seamark-clock", "seamark-close", "seamark-rest")
    names = {t.name for t in threading.enumerate() if t.name.startswith("seamark-")}
    return {name for name in names if not name.startswith(kept)}


def settings_of(spark: SparkSession) -> dict[str, str]:
    java = spark._jsparkSession.sessionState().conf().settings()
    return dict(line.split("=", 1) for line in str(java).strip("{}").split(", ") if "=" in line)


@pytest.mark.parametrize("place", PLACES)
def test_a_start_that_fails_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path, count=2)
    settings = settings_of(spark)
    before, closed = ours(), []
    close = SQLiteCommitter.close
    monkeypatch.setattr(SQLiteCommitter, "close", lambda self: (close(self), closed.append(self)))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError(f"planted at {place}")

    def job() -> sm.Job:
        declared, clicks = bounded_job(tmp_path, restart_strategy=sm.RestartStrategy.none())
        declared.sink(clicks, sm.SQLiteSink(str(tmp_path / "out.db"), table="t"), "out")
        return declared

    with monkeypatch.context() as planted:
        planted.setattr(*PLACES[place], fail)
        with pytest.raises(RuntimeError, match=f"planted at {place}"):
            job().run()
    until(lambda: ours() <= before)
    assert settings_of(spark) == settings
    assert len(closed) == 1
    assert spark.streams.active == []
    assert open_transactions(tmp_path) == []
    job().run()
    assert count(tmp_path) == (10, 10)
    assert settings_of(spark) == settings
    until(lambda: ours() <= before)


def test_another_python_of_the_tasks_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without its packages
    python.chmod(0o755)
    files(tmp_path, count=2)
    declared, clicks = bounded_job(tmp_path)
    declared.sink(clicks, sm.SQLiteSink(str(tmp_path / "out.db"), table="t"), "out")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    with pytest.raises(sm.ConfigurationError, match="Set PYSPARK_PYTHON=") as told:
        declared.run()
    assert f"tasks run {python}" in str(told.value)
    assert "No module named 'pyarrow'" in str(told.value)
    assert not (tmp_path / "out.db").exists()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    declared, clicks = bounded_job(tmp_path)
    declared.sink(clicks, sm.SQLiteSink(str(tmp_path / "out.db"), table="t"), "out")
    declared.run()
    assert count(tmp_path) == (10, 10)


def test_a_session_has_its_settings_back_when_the_last_query_with_them_has_ended(
    spark: SparkSession,
) -> None:
    mine = spark.newSession()
    mine.conf.set("spark.a", "mine")
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(lent_settings(mine, {"spark.a": "lent"}))
        second.enter_context(lent_settings(mine, {"spark.a": "lent", "spark.b": "lent"}))
        first.close()
        assert [mine.conf.get(key, None) for key in ("spark.a", "spark.b")] == ["lent", "lent"]
    assert [mine.conf.get(key, None) for key in ("spark.a", "spark.b")] == ["mine", None]


def test_an_execution_that_cannot_be_recorded_does_not_end_the_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise OSError("no room")

    files(tmp_path, count=2)
    declared, clicks = bounded_job(tmp_path)
    declared.sink(clicks, sm.SQLiteSink(str(tmp_path / "out.db"), table="t"), "out")
    monkeypatch.setattr("seamark.run.supervision.open_files", fail)
    declared.run()
    assert count(tmp_path) == (10, 10)
    assert "record of the execution: no room. The job does not need it" in caplog.text


def json_source(job: sm.Job, directory: Path, uid: str = "") -> DataFrame:
    schema = "id BIGINT"
    read = sm.FileSource(str(directory), format="json", schema=schema, ending="latest")
    return job.source(read, uid or directory.name)


def test_file_sources_that_changed_places_are_told(spark: SparkSession, tmp_path: Path) -> None:
    uids = "one", "two"

    def run(*directories: str) -> None:
        job = sm.Job("swapped", sm.CheckpointConfig(storage=str(tmp_path / "store")))
        one, two = map(partial(json_source, job), map(tmp_path.joinpath, directories), uids)
        job.sink(one.union(two), sm.SQLiteSink(f"{tmp_path}/out.db", "t"), "out")
        job.run()

    for id_, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text(f'{{"id": {id_}}}')
    run("a", "b")
    (tmp_path / "a/1.json").write_text('{"id": 2}')
    with pytest.raises(sm.UserError, match=r"one in its place has read file:.*/0\.json"):
        run("b", "a")
    assert count(tmp_path) == (2, 2)
    run("a", "b")
    assert count(tmp_path) == (3, 3)
    # The last epoch has no file of b, and Spark would not look: it would read both again.
    with pytest.raises(sm.UserError, match=r"'two' reads file:.*/a, .*has read file:.*b/0\.json"):
        run("a", "a")
    assert count(tmp_path) == (3, 3)


def test_sinks_in_another_order_that_read_one_source_twice_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark keeps an offset for each reading, by place: a source would go on at another's."""

    def run(*sinks: str) -> None:
        job = sm.Job("ordered", sm.CheckpointConfig(storage=str(tmp_path / "store")))
        frames = {name: json_source(job, tmp_path / name) for name in ("a", "b")}
        for sink in sinks:
            target = sm.SQLiteSink(f"{tmp_path}/out.db", sink)
            rows = frames[sink[0]]
            job.sink(rows.repartition(1) if sink == "a_two" else rows, target, sink)
        job.run()

    def found() -> dict[str, list[int]]:
        with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as db:
            return {
                t: [id_ for (id_,) in db.execute(f"SELECT id FROM {t} ORDER BY id")]
                for t in ("a_one", "b_one", "a_two")
            }

    for id_, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text(f'{{"id": {id_}}}')
    run("a_one", "b_one", "a_two")
    for id_ in (2, 3):
        (tmp_path / f"a/{id_}.json").write_text(f'{{"id": {id_}}}')
        run("a_one", "b_one", "a_two")  # now a has read more batches than b
    (tmp_path / "b/4.json").write_text('{"id": 4}')
    with pytest.raises(sm.UserError, match="reading 1 of the checkpoint's sources is of another"):
        run("a_one", "a_two", "b_one")
    run("a_one", "b_one", "a_two")
    assert found() == {"a_one": [0, 2, 3], "b_one": [1, 4], "a_two": [0, 2, 3]}


def test_a_program_changed_after_its_first_epoch_failed_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The epoch is planned and not decided: Spark runs it again with the files of its plan."""

    def run(*directories: str, failing: bool = False) -> None:
        job = sm.Job("first", sm.CheckpointConfig(storage=str(tmp_path / "store")))
        for name in directories:
            rows = json_source(job, tmp_path / name)
            planted = F.raise_error(F.lit("planted"))
            column = F.when(F.lit(failing) & (F.col("id") == 1), planted).otherwise(F.col("id"))
            target = sm.SQLiteSink(f"{tmp_path}/out.db", f"{name}_rows")
            job.sink(rows.select(column.cast("bigint").alias("id")), target, f"{name}_rows")
        job.run()

    for id_, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text(f'{{"id": {id_}}}')
    with pytest.raises(StreamingQueryException, match="planted"):
        run("a", "b", failing=True)
    anew = f"no epoch is decided: to begin anew, delete file://{tmp_path}/store/first"
    with pytest.raises(sm.UserError, match=r"one in its place has read file:.*/0\.json"):
        run("b", "a")
    with pytest.raises(sm.UserError, match=f"has 2 readings of sources, the program 1.*{anew}"):
        run("a")
    run("a", "b")
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as db:
        assert db.execute("SELECT id FROM a_rows").fetchall() == [(0,)]
        assert db.execute("SELECT id FROM b_rows").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("in", "in/", True),
        ("in", "../{}/in", True),
        ("in2", "in", False),
        ("in/*", "in2/*", False),
        ("a b%20", "a b%20", True),
        ("a b%20", "a b ", False),
    ],
)
def test_a_directory_in_the_place_of_another_is_told_where_spark_would_read_it_again(
    spark: SparkSession, tmp_path: Path, before: str, now: str, same: bool
) -> None:
    """After windows were closed the last epoch has no file at all."""

    def run(directory: str) -> None:
        source = spark.readStream.schema("id BIGINT, at TIMESTAMP").option("fileNameOnly", names)
        read = source.json(f"{tmp_path}/{directory.format(tmp_path.name)}")
        rows = read.withWatermark("at", "1 second").groupBy(F.window("at", "1 minute"))
        writer = sm.write_stream(rows.agg(F.count("id").alias("n")).select("window.start", "n"))
        writer = writer.format("parquet").option("path", f"{tmp_path}/out")
        writer = writer.option("checkpointLocation", f"{tmp_path}/store/q")
        writer.trigger(availableNow=True).start().awaitTermination(120)

    def closed() -> list[int]:
        return sorted(row.n for row in spark.read.parquet(f"{tmp_path}/out").collect())

    names = "false"
    for name in {"in", "in2", "in/x", "in2/x", "a b%20", "a b "}:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        rows = (f'{{"id": {n}, "at": "2024-01-01 00:0{n}:00"}}\n' for n in range(3))
        (tmp_path / name / "0.json").write_text("".join(rows))
    run(before)
    found = closed()
    if same:
        run(now)
    else:
        with pytest.raises(ConfigurationError, match="and the one in its place has read file:"):
            run(now)
    assert closed() == found
    names = "true"  # then a file is known by its name, wherever it lies
    run(now)
    assert closed() == found

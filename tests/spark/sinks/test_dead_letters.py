"""How: a job on the shared session, into a SQLite table with refusals of some rows; its
declaration, its pages, and its sinks' rows after a run. Kills: `integration/jobs`."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import seamark as sm
from seamark.sinks.sqlite import database
from seamark.sources.fields import Sequence
from tests.chaos.workload import read_column


def new_job(path: Path) -> tuple[sm.Job, DataFrame]:
    job = sm.Job("orders", sm.CheckpointConfig(storage=str(path / "store"), interval="100ms"))
    numbers = sm.DatagenSource(
        rows_per_second=100, number_of_rows=40, rows_per_epoch=20, fields={"id": Sequence()}
    )
    return job, job.source(numbers, uid="input")


def table(path: Path, columns: str) -> sm.SQLiteSink:
    sink = sm.SQLiteSink(path / "sink.db", "orders")
    with database.connect(sink.path) as cursor:
        cursor.execute(f"CREATE TABLE orders ({columns})")
    return sink


def test_bad_rows_go_to_the_second_sink_in_their_epoch(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, frame = new_job(tmp_path)
    sink = table(tmp_path, "id INTEGER CONSTRAINT no_sevens CHECK (id % 10 <> 7)")
    letters = sm.FileSink(tmp_path / "bad", format="json")
    job.sink(frame, sink, uid="orders", on_bad_row="dead_letter", dead_letters=letters)
    report = str(job.report())
    assert f"dead letters of orders: json files in {tmp_path}/bad" in report
    assert "into orders.dead-letters: exactly-once" in report

    job.run()

    ids = read_column(tmp_path / "sink.db", "orders", "id")
    assert sorted(ids) == [i for i in range(40) if i % 10 != 7]
    lines = [line for path in (tmp_path / "bad").glob("*.json") for line in path.open()]
    found = sorted((json.loads(line) for line in lines), key=lambda one: one["row"]["id"])
    reason = "CHECK constraint failed: no_sevens"
    assert found == [
        {"sink": "orders", "epoch": epoch, "reason": reason, "row": {"id": id_}}
        for epoch, id_ in ((0, 7), (0, 17), (1, 27), (1, 37))
    ]
    history = [one for one in job.checkpoints().history if one.rows]
    rows = [{task.uid: task.rows for task in one.tasks} for one in history]
    assert [(r["orders"], r["orders.dead-letters"]) for r in rows] == [(18, 2), (18, 2)]
    assert "epoch 1: sink orders refused 2 rows, which are in orders.dead-letters" in caplog.text


def test_without_dead_letters_the_error_names_sink_reason_and_remedy(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, frame = new_job(tmp_path)
    sink = table(tmp_path, "id INTEGER")

    def renamed(number: int, path: str = str(sink.path)) -> int:  # after the job's start looked
        with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(path) as connection:
            connection.execute("ALTER TABLE orders RENAME COLUMN id TO other")
        return number

    job.sink(frame.select(F.udf(renamed, LongType())("id").alias("id")), sink, uid="orders")
    with pytest.raises(Exception, match=r"'orders'.*no column 'id'.*on_bad_row=\"dead_lett"):
        job.run()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_bad_row": "skip"}, "on_bad_row is 'skip'; allowed are 'fail', 'dead_letter'"),
        ({"on_bad_row": "dead_letter"}, "dead_letters is None"),
        (
            {"dead_letters": sm.FileSink("/bad")},
            "on_bad_row is 'fail' and dead_letters is FileSink",
        ),
        (
            {"on_bad_row": "dead_letter", "dead_letters": "bad"},
            "dead_letters is str; give a sm.…Sink",
        ),
    ],
)
def test_a_wrong_argument_is_named(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    job, frame = new_job(tmp_path)
    with pytest.raises(sm.ConfigurationError, match=f"sink 'orders': .*{re.escape(message)}"):
        job.sink(frame, sm.SQLiteSink(tmp_path / "a.db", "orders"), uid="orders", **arguments)
    assert not job.declaration.sinks


def test_a_sink_that_cannot_tell_its_bad_rows_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    job, frame = new_job(tmp_path)
    files, letters = sm.FileSink(tmp_path / "a"), sm.FileSink(tmp_path / "b")
    with pytest.raises(sm.ConfigurationError, match=r"'orders'.*parquet.*create_selective_writer"):
        job.sink(frame, files, uid="orders", on_bad_row="dead_letter", dead_letters=letters)


def test_the_uid_of_the_dead_letters_is_the_jobs_own(spark: SparkSession, tmp_path: Path) -> None:
    job, frame = new_job(tmp_path)
    files, sqlite = sm.FileSink(tmp_path / "a"), sm.SQLiteSink(tmp_path / "a.db", "orders")
    job.sink(frame, files, uid="orders.dead-letters")
    with pytest.raises(sm.ConfigurationError, match=r"'orders\.dead-letters' is given to the dead"):
        job.sink(frame, sqlite, uid="orders", on_bad_row="dead_letter", dead_letters=files)
    assert list(job.declaration.sinks) == ["orders.dead-letters"]

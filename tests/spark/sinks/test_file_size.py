"""An epoch with little output is written by few tasks, once an epoch before it was seen.

How: bounded jobs, an input file an epoch, into files and SQLite; the files' names have their epoch.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

import seamark as sm
from seamark.run import gathering

EPOCHS = 4
STATES = 7
"""More than any machine of the tests has cores for: else nothing would have to be gathered."""


def frames(job: sm.Job, tmp_path: Path) -> DataFrame:
    """Return a stream with an input file, of 50 rows, in each epoch."""
    (tmp_path / "in").mkdir()
    for n in range(EPOCHS):
        rows = [json.dumps({"id": i, "text": f"row {i}"}) for i in range(50 * n, 50 * n + 50)]
        (tmp_path / f"in/{n}.json").write_text("\n".join(rows))
    source = sm.FileSource(
        str(tmp_path / "in"), format="json", schema="id LONG, text STRING", ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    return job.source(source, "in")


def files_by_epoch(directory: Path) -> dict[int, int]:
    """Return how many files each epoch has left."""
    return Counter(int(path.name.split("-")[1]) for path in directory.rglob("part-*"))


def new_job(tmp_path: Path) -> sm.Job:
    return sm.Job("sized", sm.CheckpointConfig(storage=str(tmp_path / "store"), interval=0))


def unique(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["id"])


def divided(rows: DataFrame) -> DataFrame:
    return rows.repartition(STATES)


def joined(rows: DataFrame) -> DataFrame:
    """Spark plans a join with a table anew while it runs (adaptive execution)."""
    table = rows.sparkSession.range(1000)
    return rows.repartition(STATES).join(broadcast(table), "id")


@pytest.mark.parametrize("size", [None, "1MB"])
@pytest.mark.parametrize("program", [unique, divided, joined])
def test_later_epochs_have_few_files(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Callable[[DataFrame], DataFrame],
    size: str | None,
) -> None:
    monkeypatch.setattr(gathering, "LONGEST_S", 60.0)  # short epochs, on a slow machine too
    job = new_job(tmp_path)
    rows = program(frames(job, tmp_path))
    job.sink(rows, sm.FileSink(str(tmp_path / "out"), target_file_size=size), "out")
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), "rows"), "rows")
    job.run(parallelism=STATES)
    found = files_by_epoch(tmp_path / "out")
    cores = min(spark.sparkContext.defaultParallelism, STATES)
    assert found.pop(0) == STATES
    assert len(found) == EPOCHS - 1
    if size is None:
        assert set(found.values()) == {cores}, found
    assert all(1 <= count <= cores for count in found.values()), found
    ids = sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert ids == list(range(50 * EPOCHS))
    with sqlite3.connect(tmp_path / "out.db") as connection:
        assert connection.execute("SELECT count(*), sum(id) FROM rows").fetchall() == [
            (len(ids), sum(ids))
        ]


def test_state_written_by_few_tasks_is_found_by_all_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A second run begins with a task for each partition of the state: it must know every id that
    the first run's gathered tasks have seen."""
    for run in range(2):
        job = new_job(tmp_path)
        if run:
            for path in (tmp_path / "in").iterdir():
                path.rename(path.with_name(f"again-{path.name}"))
            source = sm.FileSource(
                str(tmp_path / "in"), format="json", schema="id LONG, text STRING", ending="latest"
            )
            rows = job.source(source, "in")
        else:
            rows = frames(job, tmp_path)
        unique = rows.dropDuplicates(["id"])
        job.sink(unique, sm.FileSink(str(tmp_path / "out"), target_file_size="1MB"), "out")
        job.run(parallelism=STATES)
    ids = sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert ids == list(range(50 * EPOCHS))

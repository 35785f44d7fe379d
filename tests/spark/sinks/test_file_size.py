"""An epoch with little output is written by few tasks, once an epoch before it was seen.

How: bounded jobs, an input file an epoch, into files and SQLite; the files' names have their epoch.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import seamark as sm

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


@pytest.mark.parametrize("stateful", [False, True])
def test_later_epochs_have_few_files(spark: SparkSession, tmp_path: Path, stateful: bool) -> None:
    """But where the program itself says how many tasks there are."""
    job = new_job(tmp_path)
    rows = frames(job, tmp_path)
    rows = rows.dropDuplicates(["id"]) if stateful else rows.repartition(STATES)
    job.sink(rows, sm.FileSink(str(tmp_path / "out"), target_file_size="1MB"), "out")
    job.sink(rows, sm.SQLiteSink(str(tmp_path / "out.db"), "rows"), "rows")
    job.run(parallelism=STATES)
    found = files_by_epoch(tmp_path / "out")
    most = spark.sparkContext.defaultParallelism if stateful else STATES
    assert found[0] == STATES, found
    assert all(1 <= found[epoch] <= min(most, STATES) for epoch in range(1, EPOCHS)), found
    ids = sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert ids == list(range(50 * EPOCHS))
    with sqlite3.connect(tmp_path / "out.db") as connection:
        assert connection.execute("SELECT count(*), sum(id) FROM rows").fetchall() == [
            (len(ids), sum(ids))
        ]


def test_without_a_size_each_core_has_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """But where the program itself says how many tasks there are."""
    job = new_job(tmp_path)
    rows = frames(job, tmp_path)
    job.sink(rows.repartition(STATES), sm.FileSink(str(tmp_path / "own")), "own")
    job.run()
    assert set(files_by_epoch(tmp_path / "own").values()) == {STATES}
    other = sm.Job("unsized", sm.CheckpointConfig(storage=str(tmp_path / "store"), interval=0))
    source = sm.FileSource(
        str(tmp_path / "in"), format="json", schema="id LONG, text STRING", ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )  # fmt: skip
    rows = other.source(source, "in").dropDuplicates(["id"])
    other.sink(rows, sm.FileSink(str(tmp_path / "out")), "out")
    other.run(parallelism=STATES)
    found = files_by_epoch(tmp_path / "out")
    cores = spark.sparkContext.defaultParallelism
    assert found.pop(0) == STATES
    assert set(found.values()) == {min(cores, STATES)}, found


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

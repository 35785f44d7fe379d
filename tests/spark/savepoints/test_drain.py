"""A job is drained: it reads nothing more, its windows close, and no row is lost or counted twice.

How: a job counts events in windows of a minute while a thread goes on adding input. It ends with a
drained savepoint; another job goes on from there, and is drained in its turn. Both together have
counted each event once. The kills are drivers of their own, by SIGKILL in the drain's own epoch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.model.errors import DrainedError
from tests.chaos.driver import Driver
from tests.threads import RunningJob, repeatedly

BEGIN = 1_700_000_000
ROWS = 20
PER_EPOCH = 40
"""More than arrive in a few seconds, for a slow machine to fall behind little."""


class Events:
    """A directory of input files, each with the events of the next ten seconds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = 0
        directory.mkdir()

    def add(self) -> None:
        begin = BEGIN + 10 * self.files
        rows = [json.dumps({"at": begin + i % 10}) for i in range(ROWS)]
        hidden = self.directory / f".{self.files}"
        hidden.write_text("\n".join(rows))
        hidden.rename(self.directory / f"{self.files:05d}.json")
        self.files += 1


def declare(home: Path, name: str, events: Path, interval: str = "100ms") -> sm.Job:
    job = sm.Job(name, sm.CheckpointConfig(storage=str(home / "store"), interval=interval))
    source = sm.FileSource(
        str(events),
        format="json",
        schema="at BIGINT",
        options={"maxFilesPerTrigger": str(PER_EPOCH)},
    )
    rows = job.source(source, uid="events").withColumn("at", F.timestamp_seconds("at"))
    counted = rows.withWatermark("at", "5 seconds").groupBy(F.window("at", "1 minute")).count()
    job.uid(counted, "per-minute")
    shown = counted.select(F.unix_timestamp("window.start").alias("start"), "count")
    job.sink(shown, sm.FileSink(str(home / name), format="json"), uid="out")
    return job


def counts(home: Path, *names: str) -> dict[int, list[int]]:
    """Return the counts of each window."""
    found: dict[int, list[int]] = {}
    for name in names:
        for path in sorted((home / name).rglob("*.json")):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                found.setdefault(row["start"], []).append(row["count"])
    return found


def total(*found: dict[int, list[int]]) -> int:
    return sum(sum(of_window) for one in found for of_window in one.values())


def files_read(savepoint: str) -> int:
    """Return how many input files are in a savepoint, by the file source's own log."""
    log = Path(savepoint.removeprefix("file:").replace("//", "/"), "spark", "sources", "0")
    return len({
        json.loads(line)["path"]
        for path in log.iterdir() if not path.name.startswith(".")
        for line in path.read_text().splitlines()[1:]
    })  # fmt: skip


def test_rows_that_arrive_during_a_drain_are_the_next_jobs(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = Events(tmp_path / "in")
    events.add()
    first = RunningJob(declare(tmp_path, "first", events.directory))
    with repeatedly(events.add, 0.15):
        first.wait_for_epochs(3)
        asked = first.job.stop_with_savepoint(str(tmp_path / "savepoints"), drain=True)
        path = asked.result(300)
        first.join()
        time.sleep(0.3)
    read = files_read(path)
    assert 0 < read < events.files, "rows arrived after the drain"
    closed = counts(tmp_path, "first")
    assert total(closed) == ROWS * read, "every window is closed, and nothing more was read"
    record = sm.Savepoint(path).record
    assert record.drained
    assert BEGIN * 1000 <= record.watermark_ms < (BEGIN + 10 * read) * 1000, "that of before"

    with pytest.raises(DrainedError, match="restore its savepoint"):
        declare(tmp_path, "first", events.directory).run()

    second = RunningJob(declare(tmp_path, "second", events.directory), restore=path)
    second.wait_for_epochs((events.files - read + PER_EPOCH - 1) // PER_EPOCH)
    last = second.job.stop_with_savepoint(str(tmp_path / "savepoints"), drain=True).result(300)
    second.join()
    assert files_read(last) == events.files
    both = counts(tmp_path, "first", "second")
    assert total(both) == ROWS * events.files
    assert sorted(map(len, both.values()))[:-1] == [1] * (len(both) - 1), (
        "one window alone is split"
    )

    # A retained checkpoint of a drained job is no trap either.
    events.add()
    third = RunningJob(
        declare(tmp_path, "third", events.directory), restore=str(tmp_path / "store" / "second")
    )
    third.wait_for_epochs(1)
    third.job.stop_with_savepoint(str(tmp_path / "savepoints"), drain=True).result(300)
    third.join()
    assert total(counts(tmp_path, "third")) == ROWS


@dataclass(frozen=True)
class SlowTable(sm.WriteAheadSink):
    """Into a table of Derby, half a second later."""

    url: str

    def describe(self) -> str:
        return self.url

    def send(self, batches: Iterator[pa.RecordBatch], token: Any) -> None:
        rows = [(row["id"],) for batch in batches for row in batch.to_pylist()]
        time.sleep(0.5)  # an epoch beside it would have read the table by then
        made = SparkSession.builder.getOrCreate().createDataFrame(rows, "id BIGINT")
        made.write.jdbc(self.url, "seen", mode="append")


def count_up(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
    n = state.get[0] if state.exists else 0
    yield pd.DataFrame({"id": [n, n + 1]})
    state.update((n + 1,))
    state.setTimeoutDuration(1)


def test_closing_epochs_read_what_the_epoch_before_has_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two of a drain read the joined table without each other's rows, and wrote a row twice."""
    url = f"jdbc:derby:memory:{tmp_path.name};create=true"
    spark.range(0).write.jdbc(url, "seen")
    events = Events(tmp_path / "in")
    events.add()
    config = sm.CheckpointConfig(storage=str(tmp_path / "store"), interval="50ms")
    job = sm.Job("up", config, "append")
    rows = job.source(sm.FileSource(str(events.directory), "json", "at BIGINT"), "events")
    counted = (
        rows.selectExpr("at * 0 AS zero")
        .groupBy("zero")
        .applyInPandasWithState(
            count_up, "id BIGINT", "n BIGINT", "append", "ProcessingTimeTimeout"
        )
    )
    job.uid(counted, "count")
    new = counted.selectExpr("bigint(string(id)) AS id").join(
        spark.read.jdbc(url, "seen"), "id", "left_anti"
    )
    job.sink(new, SlowTable(url), uid="out")
    running = RunningJob(job)
    running.wait_for_epochs(2)
    running.job.stop_with_savepoint(str(tmp_path / "savepoints"), drain=True).result(300)
    running.join()
    written = sorted(row.id for row in spark.read.jdbc(url, "seen").collect())
    assert written == [*range(len(written))]


PROGRAM = """
import json, sys, threading
from pathlib import Path
from tests.spark.savepoints.test_drain import declare

options = json.loads(sys.argv[1])
home = Path(options["home"])
job = declare(home, "job", home / "in", interval="1h")


before = job.checkpoints().counts.completed


def drain():
    while job.checkpoints().counts.completed <= before:
        threading.Event().wait(0.1)
    print("SAVEPOINT", job.stop_with_savepoint(str(home / "savepoints"), drain=True).result())


threading.Thread(target=drain, daemon=True).start()
job.run()
"""


@pytest.mark.chaos
def test_a_drain_that_is_killed(tmp_path: Path) -> None:
    """Before its epoch is decided it has not happened; after that the job has ended."""
    events = Events(tmp_path / "in")
    for _ in range(3):
        events.add()
    (tmp_path / "app.py").write_text(PROGRAM)
    options: dict[str, Any] = {"home": str(tmp_path)}

    def run(log: str, failpoint: str | None = None) -> Driver:
        return Driver(tmp_path / "app.py", options, tmp_path / log, failpoint)

    # Epoch 0 reads, epoch 1 moves the watermark, epoch 2 is the drain's.
    run("prepared.log", "prepared:3").die()
    assert total(counts(tmp_path, "job")) == 0
    for _ in range(2):
        events.add()
    # The next driver reads these in one epoch, moves the watermark in another, and drains.
    run("decided.log", "decided:3").die()
    again = run("again.log")
    assert again.wait(240) != 0
    assert "was drained: its windows are closed" in again.tail()
    assert counts(tmp_path, "job") == {
        start: [ROWS * len(files)]
        for start in range(BEGIN - BEGIN % 60, BEGIN + 50, 60)
        if (files := [n for n in range(5) if start <= BEGIN + 10 * n < start + 60])
    }, "each window once and whole"

"""How: a real job with an interval of ten minutes reads the test's files, so every epoch within the
test was asked for: by a call, or over HTTP. A row "hold" keeps its task until the test lets it go,
a row "fail" raises there."""

from __future__ import annotations

import json
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.jobs.registry import list_jobs
from seamark.model.errors import StoppedError, UserError
from tests.chaos.driver import wait_until
from tests.threads import PATIENCE_S, RunningJob
from tests.tokens import read_token


class AskedJob(RunningJob):
    """A job in a thread, and its input files."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self.home = home
        (home / "in").mkdir()
        gate = str(home / "gate")

        def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                words = batch.column(0).to_pylist()
                if "fail" in words:
                    raise ValueError("the row says fail")
                while "hold" in words and not Path(gate).exists():
                    time.sleep(0.05)
                yield batch

        job = sm.Job("asked", sm.CheckpointConfig(storage=str(home / "store"), interval="10min"))
        lines = job.source(
            spark.readStream.schema("value string").text(str(home / "in")), "lines", replayable=True
        )
        job.sink(
            lines.mapInArrow(look, "value string"),
            sm.SQLiteSink(str(home / "out.db"), "words"),
            "db",
        )
        super().__init__(job)

    def write(self, word: str) -> None:
        (self.home / f".{word}").write_text(f"{word}\n")
        (self.home / f".{word}").rename(self.home / "in" / f"{word}.txt")

    def words(self) -> set[str]:
        with sqlite3.connect(self.home / "out.db") as connection:
            return {word for (word,) in connection.execute("SELECT value FROM words")}

    def ask(self) -> Future[int]:
        def asked() -> Any:
            try:
                return self.job.trigger_checkpoint()
            except UserError:  # it is starting
                return None

        future: Future[int] = wait_until("a job that runs", asked, PATIENCE_S)
        return future

    def committed(self) -> list[int]:
        return [c.id for c in self.job.checkpoints().history if c.status.value == "COMPLETED"][::-1]

    def stop(self) -> None:
        (self.home / "gate").touch()
        super().stop()


@pytest.fixture
def running(spark: SparkSession, tmp_path: Path) -> Iterator[AskedJob]:
    """A job after a first trigger without rows: the next one would come in ten minutes."""
    job = AskedJob(spark, tmp_path)
    with pytest.raises(UserError, match="no checkpoint, and takes none now"):
        job.ask().result(PATIENCE_S)
    yield job
    job.stop()


def test_a_checkpoint_comes_when_it_is_asked_for(running: AskedJob) -> None:
    running.write("one")
    first = running.ask().result(PATIENCE_S)
    assert running.words() == {"one"}
    running.write("two")
    assert running.ask().result(PATIENCE_S) == first + 1
    assert running.words() == {"one", "two"}

    # Nothing new: no epoch, and the last one is the answer.
    assert running.ask().result(PATIENCE_S) == first + 1

    # Asked while an epoch goes on: what was written after it began is in the next one, at once.
    running.write("hold")
    slow = running.ask()
    wait_until("the slow epoch", lambda: len(running.job.checkpoints().history) == 3, PATIENCE_S)
    running.write("three")
    after, as_well = running.ask(), running.ask()
    with pytest.raises(NotYetError):
        slow.result(0.5)
    assert not after.done()
    (running.home / "gate").touch()
    assert slow.result(PATIENCE_S) == first + 2
    assert (after.result(PATIENCE_S), as_well.result(PATIENCE_S)) == (first + 3, first + 3)
    assert running.words() == {"one", "two", "hold", "three"}
    wait_until("the history", lambda: running.committed() == [0, 1, 2, 3], PATIENCE_S)


def test_a_checkpoint_that_fails_says_why(running: AskedJob) -> None:
    client = RestClient(running.home / "store")
    running.write("fail")
    status, asked = client.send("POST", "/checkpoints")
    assert status == 202
    failed = client.operation(f"/checkpoints/{asked['request-id']}")["failure-cause"]
    assert "the row says fail" in failed["stack-trace"]
    running.stop()
    assert "the row says fail" in str(running.error)
    with pytest.raises(UserError, match="is not running"):
        running.job.trigger_checkpoint()


def test_a_job_is_cancelled_and_its_driver_says_so_before_it_goes(running: AskedJob) -> None:
    client = RestClient(running.home / "store")
    running.write("hold")
    asked = running.ask()
    _, same = client.send("POST", "/checkpoints", {"triggerId": "a" * 32})
    assert same == client.send("POST", "/checkpoints", {"triggerId": "a" * 32})[1]
    assert same == {"request-id": "a" * 32}
    assert client.send("GET", f"/checkpoints/{'a' * 32}")[1]["operation"] is None
    wait_until("the epoch", lambda: running.job.checkpoints().history, PATIENCE_S)
    assert client.send("PATCH", "?mode=cancel") == (202, {})
    with pytest.raises(StoppedError, match="ended before the checkpoint was complete"):
        asked.result(PATIENCE_S)
    shown = wait_until(
        "the end", lambda: [j for j in [client.send("GET", "")[1]] if j["end-time"] > 0], PATIENCE_S
    )[0]
    assert shown["state"] == "CANCELED"
    assert shown["duration"] == shown["end-time"] - shown["start-time"]
    running.stop()
    assert running.error is None
    assert read_token(client.jid) is None


class RestClient:
    """A client with the token of a running job, and its address."""

    def __init__(self, storage: Path) -> None:
        (job,) = list_jobs(f"file://{storage}")
        self.jid = job.start.job_id
        self._url = f"{job.start.rest_url}/jobs/{self.jid}"
        self._token = read_token(self.jid)

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)

    def operation(self, path: str) -> Any:
        """Return the outcome of an operation, when it is done."""
        page = wait_until(
            path,
            lambda: [p for p in [self.send("GET", path)[1]] if p["status"]["id"] == "COMPLETED"],
            PATIENCE_S,
        )
        return page[0]["operation"]


def test_a_query_without_a_name_is_woken_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    """Another query has the name that this one's job has: its location's last part."""
    (tmp_path / "in").mkdir()
    rows: list[str] = []
    other = (
        spark.readStream.format("rate").load().writeStream.format("noop").queryName("ck")
        .trigger(processingTime="10 minutes").start()
    )  # fmt: skip
    query = (
        sm.write_stream(spark.readStream.schema("value string").text(str(tmp_path / "in")))
        .option("checkpointLocation", str(tmp_path / "ck"))
        .trigger(processingTime="10 minutes")
        .foreachBatch(lambda frame, _: rows.extend(row.value for row in frame.collect()))
        .start()
    )
    try:
        client = RestClient(tmp_path)
        wait_until("the first trigger", lambda: not query.status["isTriggerActive"], PATIENCE_S)
        (tmp_path / "in/one.txt").write_text("one\n")
        asked = client.send("POST", "/checkpoints")[1]
        operation = client.operation(f"/checkpoints/{asked['request-id']}")
        assert "failure-cause" not in operation, operation
        assert rows == ["one"]
    finally:
        query.stop()
        other.stop()

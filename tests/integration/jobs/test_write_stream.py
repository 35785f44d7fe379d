"""Spark's own way to write a stream, `sm.write_stream`, from Kafka to Kafka, killed with -9.

The program is Spark's documented word count and windowed count, `tests/chaos/app_write_stream.py`;
one option turns its one changed line back, so plain Spark runs the same program. The judge is its
batch run over the same rows, and a read_committed reader of the topic.

How a take-over is tried: plain Spark begins, and dies by kill -9 or ends; Seamark goes on in the
same checkpoint location, and its drivers die at failpoints; after a stop plain Spark goes on again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seamark.dev.kafka import LocalKafka
from seamark.spark.jars import spark_kafka_jars
from tests.chaos import checker, workload
from tests.chaos.driver import REPOSITORY, Driver, wait_until
from tests.chaos.history import window_counts
from tests.chaos.scenario import HERE, KafkaScenario

POINTS = ["prepared:2", "decided:2", "sealed:2"]


class StreamScenario(KafkaScenario):
    """One query of the program; `query` names it."""

    program = "app_write_stream.py"
    job = "location"

    def __init__(self, directory: Path, servers: str, query: str, **options: Any) -> None:
        self.query = query
        jars = ",".join(map(str, spark_kafka_jars()))
        options = {"query": query, "jars": jars, "interval": "200 milliseconds", **options}
        super().__init__(directory, servers, **options)

    def expected(self) -> int:
        return sum(Counter(self.batch()).values())

    def visible(self) -> int:
        """How many of the rows of the batch run are there: counts rise, so the last ones show."""
        wanted = Counter(self.batch())
        return sum((Counter((row.key, row.value) for row in self.reader.rows) & wanted).values())

    def batch(self) -> list[tuple[str, str]]:
        """What a batch run gives, counted here; `batch_run` lets Spark say it."""
        rows = self.feeder.rows
        if self.query == "rows":
            return [(row.key, row.value) for row in rows]
        if self.query == "words":
            found = Counter(word for row in rows for word in row.key.split("-"))
            return [(word, str(count)) for word, count in found.items()]
        return [(key, value) for key, value in window_counts(self.feeder.counted, 10_000)]

    def batch_run(self) -> list[tuple[str, str]]:
        """Run the same program as a batch of Spark's."""
        found = self.directory / "batch.json"
        assert self.start(batch=str(found)).wait(120) == 0
        return [(key, value) for key, value in json.loads(found.read_text())]

    def written(self) -> Counter[tuple[str, str]]:
        """Return the topic's rows, as a read_committed reader sees them."""
        rows = workload.read_topic(self.servers, self.output)
        return Counter((row.key, row.value) for row in rows)

    def check(self) -> list[checker.Anomaly]:
        raise NotImplementedError

    def plain(self, **options: Any) -> Driver:
        """Start the program without its one changed line."""
        return self.start(seamark=False, **options)

    def commits(self) -> set[int]:
        """Return Spark's decided batches."""
        return self.epochs_in("commits")


def seamark(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
        },
        timeout=300,
        check=False,
    )


def answer(directory: Path, *arguments: str) -> Any:
    """Return a command's JSON."""
    done = seamark(directory, *arguments, "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("query", [pytest.param("words", marks=pytest.mark.chaos), "windows"])
def test_the_documented_counts_killed_three_times_equal_their_batch_run(
    kafka: LocalKafka, tmp_path: Path, query: str
) -> None:
    with StreamScenario(tmp_path, kafka.bootstrap_servers, query) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(2)
        scenario.drain(driver)
        driver.stop()
        found, wanted = scenario.written(), scenario.batch_run()
        doubled = {row: times for row, times in found.items() if times > 1}
        assert not doubled, f"shown more than once: {doubled}"
        if query == "windows":
            shown = {row for row in wanted if row[0] != workload.END_KEY}
            assert set(found) == shown
        else:  # each count of a word is a row; the last of them is the batch run's
            last: dict[str, int] = {}
            for word, count in found:
                last[word] = max(int(count), last.get(word, 0))
            assert last == {word: int(count) for word, count in wanted}


@pytest.mark.timeout(900)
def test_a_plain_query_that_was_killed_is_taken_over(kafka: LocalKafka, tmp_path: Path) -> None:
    """Plain Spark's own last batch may be there twice: it was written and not decided. Nothing else
    is, and nothing is lost."""
    with StreamScenario(tmp_path, kafka.bootstrap_servers, "rows") as scenario:
        plain = scenario.plain()
        wait_until("plain Spark decides", lambda: len(scenario.commits()) > 3, 180)
        plain.kill_tree()
        undecided = scenario.epochs_in("offsets") - scenario.commits()
        first = max(scenario.commits())
        again = _rows_between(scenario, first, max(undecided)) if undecided else set()
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(2)
        scenario.drain(driver)
        driver.stop()
        found = scenario.written()
        assert set(found) == set(scenario.batch_run())
        doubled = {row for row, times in found.items() if times > 1}
        places = _places(scenario)
        assert all(places[row] in again for row in doubled), doubled
        identity = json.loads((scenario.job_directory / "job.json").read_text())["body"]
        assert (identity["first_epoch"], identity["name"]) == (first + 1, "counted")


@pytest.mark.timeout(900)
def test_state_is_taken_over_and_given_back(kafka: LocalKafka, tmp_path: Path) -> None:
    """Plain Spark, then Seamark, killed on the way and stopped from the command line, then plain
    Spark again: the windows are those of one batch run."""
    with StreamScenario(tmp_path, kafka.bootstrap_servers, "windows") as scenario:
        wait_until("rows come", lambda: len(scenario.feeder.rows) > 500, 30)
        assert scenario.plain(available_now=True, most=200).wait(240) == 0
        before = max(scenario.commits())
        assert before >= 1, "one batch alone has no open window to give on"
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(2)
        done = seamark(tmp_path, "stop", "counted", "--storage", str(scenario.storage))
        assert done.returncode == 0, done.stderr[-2000:]
        assert driver.wait(60) == 0, driver.tail()
        scenario.feeder.close()
        assert scenario.plain(available_now=True).wait(240) == 0
        found = scenario.written()
        wanted = {row for row in scenario.batch_run() if row[0] != workload.END_KEY}
        assert set(found) == wanted
        assert set(found.values()) == {1}


@pytest.mark.timeout(600)
def test_such_a_query_is_a_job_for_every_command(kafka: LocalKafka, tmp_path: Path) -> None:
    with StreamScenario(tmp_path, kafka.bootstrap_servers, "rows") as scenario:
        at = ("--storage", str(scenario.storage))
        scenario.die_at("prepared:2")
        assert scenario.txn("list"), "the dead driver's transactions are not listed"
        driver = scenario.start()
        driver.wait_for_epochs(2)
        (job,) = answer(tmp_path, "list", *at)
        assert (job["name"], job["state"]) == ("counted", "RUNNING")
        info = answer(tmp_path, "info", "counted", *at)
        assert info["directory"].endswith("/location")
        assert info["guarantee"] == "exactly-once"
        assert answer(tmp_path, "info", "location", *at)["jid"] == job["jid"]
        saved = seamark(tmp_path, "savepoint", "counted", str(tmp_path / "saved"), *at)
        assert saved.returncode == 0, saved.stderr[-2000:]
        assert seamark(tmp_path, "cancel", "counted", *at).returncode == 0
        assert driver.wait(60) == 0, driver.tail()
        (tmp_path / "options.json").write_text(json.dumps(scenario.options))
        explained = seamark(tmp_path, "explain", str(HERE / scenario.program))
        assert explained.returncode == 0, explained.stderr[-2000:]
        assert "exactly-once" in explained.stdout


def _rows_between(scenario: StreamScenario, after: int, upto: int) -> set[tuple[int, int]]:
    """Return partition and offset of the rows in the batches after `after`, up to `upto`."""
    start, end = (
        json.loads((scenario.job_directory / f"offsets/{n}").read_text().splitlines()[-1])[
            scenario.input
        ]
        for n in (after, upto)
    )
    return {(int(p), n) for p in end for n in range(start.get(p, 0), end[p])}


def _places(scenario: StreamScenario) -> dict[tuple[str, str], tuple[int, int]]:
    rows = workload.read_topic(scenario.servers, scenario.input)
    return {(row.key, row.value): (row.partition, row.offset) for row in rows}

"""`format("seamark")` on a standalone cluster of two hosts, with speculation: attempts that lose
against their copies, copies that lose, executors and drivers killed with -9.

An attempt is made to hang with its transaction open (`trouble.py`); in the meantime the query goes
on. Whatever was open at the target then has to be ended while the query runs, long before its
time-out; so the last stable offset of Kafka passes what was the end. In the end every row is there
once and nothing is open. Spark's event log says which attempts were speculative, and which lost.

In `make chaos`; `SEED=7` repeats the moments of the random kills.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamark.datasource.location import SWEEP_S
from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import REPOSITORY, Driver, wait_until
from tests.integration.cluster.spark_cluster import SparkCluster
from tests.integration.data_source.test_kills import Query, read_committed
from tests.servers.postgres import PostgresServer

ROWS = 50
"""Rows of one file, which is one batch."""
AHEAD = 3
RANDOM_KILLS = 6
WITHIN_S = 60.0
HELD_S = 8.0
"""How long an original hangs which wins against its hanging copy."""
CONF = {
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1500ms",
    "spark.task.maxFailures": "20",  # an executor's death counts
    "spark.stage.maxConsecutiveAttempts": "20",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}


@dataclass(frozen=True)
class Target:
    """A sink as options; who reads its ids back; `written` is a mark of what is there now, open or
    not, and `is_settled` whether none of it is open any more."""

    options: dict[str, str]
    read: Callable[[], list[int]]
    written: Callable[[], Any]
    is_settled: Callable[[Any], bool]
    select: list[str] | None = None


def kafka(request: pytest.FixtureRequest) -> Target:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    broker: LocalKafka = request.getfixturevalue("kafka")
    name = request.getfixturevalue("topic")(2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    latest = {TopicPartition(name, number): OffsetSpec.latest() for number in range(2)}

    def ends(level: IsolationLevel) -> dict[int, int]:
        asked = admin.list_offsets(latest, isolation_level=level)
        return {place.partition: told.result(30).offset for place, told in asked.items()}

    def is_settled(end: Mapping[int, int]) -> bool:
        stable = ends(IsolationLevel.READ_COMMITTED)
        return all(stable[number] >= offset for number, offset in end.items())

    return Target(
        {
            "sink": "tests.integration.data_source.trouble:TroubledKafka",
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": name,
            "transactional_id_prefix": name,
            "transaction_timeout": "15min",
        },
        lambda: read_committed(broker, name, 2)[0],
        lambda: ends(IsolationLevel.READ_UNCOMMITTED),
        is_settled,
        ["CAST(id AS STRING) AS key", "name AS value"],
    )


def postgres(request: pytest.FixtureRequest) -> Target:
    server: PostgresServer = request.getfixturevalue("postgres")
    server.execute("DROP TABLE IF EXISTS on_a_cluster")

    def opened() -> set[str]:
        return {row[0] for row in server.execute("SELECT gid FROM pg_prepared_xacts")}

    return Target(
        {
            "sink": "tests.integration.data_source.trouble:TroubledPostgres",
            "url": server.url(),
            "table": "on_a_cluster",
            "mode": "prepared",
            "create_table": "true",
        },
        lambda: [row[0] for row in server.execute("SELECT id FROM on_a_cluster")],
        opened,
        lambda before: not (before & opened()),
    )


class Course:
    """One query on the cluster, driver after driver, and what befalls it."""

    def __init__(self, directory: Path, cluster: SparkCluster, target: Target) -> None:
        self.directory, self.cluster, self.target = directory, cluster, target
        for name in ("in", "trouble", "events", "made"):
            (directory / name).mkdir()
        self.query = Query(
            directory,
            options={**target.options, "trouble": str(directory / "trouble")},
            master=cluster.url,
            conf={**CONF, "spark.eventLog.dir": f"file://{directory}/events"},
            trigger={"processingTime": "0 seconds"},
        )
        if target.select:
            self.query.given["select"] = target.select
        self.driver: Driver | None = None
        self.files = 0
        self.killed: Counter[str] = Counter()
        self.longest_s = 0.0
        self._numbers = itertools.count(1)
        self._feeding, self._ended = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=t) for t in (self._feed, self._watch)]

    def __enter__(self) -> Course:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if self.driver is not None:
            self.driver.kill_tree()

    # --- input

    def feed_one(self) -> None:
        ids = range(self.files * ROWS, (self.files + 1) * ROWS)
        text = "\n".join(json.dumps({"id": i, "name": f"n{i % 7}"}) for i in ids)
        made = self.directory / f"made/{self.files:05d}.json"
        made.write_text(text + "\n")
        made.rename(self.directory / "in" / made.name)
        self.files += 1

    def _feed(self) -> None:
        while not self._ended.wait(0.1):
            if self._feeding.is_set() and self.files - self.batches < AHEAD:
                self.feed_one()

    def pause(self) -> None:
        """Feed no more, and wait until all is committed."""
        self._feeding.clear()
        time.sleep(0.3)
        self.wait(f"all of {self.files} files", lambda: self.batches == self.files)

    def resume(self) -> None:
        self._feeding.set()

    # --- what is seen

    @property
    def batches(self) -> int:
        """How many batches Spark's own log has; each is one file."""
        commits = self.directory / "checkpoint/commits"
        numbers = [int(file.name) for file in commits.glob("*") if file.name.isdigit()]
        return max(numbers, default=-1) + 1

    def _watch(self) -> None:
        """Find how long anything was open: dead drivers' time to start again is in it."""
        open_: list[tuple[float, Any]] = []
        while not self._ended.wait(0.25):
            open_.append((time.monotonic(), self.target.written()))
            open_ = [(at, mark) for at, mark in open_ if not self.target.is_settled(mark)]
            if open_:
                self.longest_s = max(self.longest_s, time.monotonic() - open_[0][0])

    def wait(self, what: str, condition: Callable[[], Any], timeout_s: float = WITHIN_S) -> Any:
        def found() -> Any:
            assert self.driver is None or self.driver.returncode is None, "the driver has ended"
            return condition()

        try:
            return wait_until(what, found, timeout_s)
        except AssertionError as error:
            tail = self.driver.text()[-6000:] if self.driver else ""
            raise AssertionError(f"{error}\n{tail}") from None

    def goes_on(self, batches: int = 2) -> None:
        until = self.batches + batches
        self.wait(f"{until} batches", lambda: self.batches >= until)

    def settles(self) -> None:
        """Wait until nothing of what is at the target now is open; the query may go on."""
        mark = self.target.written()
        self.wait(f"nothing open of {mark}", lambda: self.target.is_settled(mark))

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return Spark's events of one kind, of all drivers; a killed one's last may be missing."""
        found = []
        for file in (self.directory / "events").iterdir():
            for line in file.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    event = json.loads(line)
                    if event["Event"] == kind:
                        found.append({**event, "Driver": file.name})
        return found

    # --- what befalls it

    def arm(self, moment: str, for_s: float = 600, *, copy: bool = False) -> Path:
        trouble = self.directory / "trouble"
        armed = trouble / f"armed-{next(self._numbers):03d}-{moment}"
        made = trouble / f"new-{armed.name}"
        made.write_text(json.dumps({"for_s": for_s, "copy": copy}))
        made.rename(armed)
        return trouble / armed.name.replace("armed", "taken")

    def taken(self, file: Path) -> dict[str, Any]:
        who: dict[str, Any] = json.loads(
            self.wait(f"{file.name} is hanging", lambda: file.exists() and file.read_text())
        )
        return who

    def hang(self, moment: str, *, copy: bool = False) -> dict[str, Any]:
        return self.taken(self.arm(moment, copy=copy))

    def start(self) -> None:
        self.driver = self.query.start()

    def kill_driver(self) -> None:
        assert self.driver is not None
        self.driver.kill_tree()
        self.driver = None
        self.killed["driver"] += 1

    def kill_executor(self, executor: psutil.Process, *, workers: bool) -> None:
        """Kill an executor with -9, and its Python workers too, or else these die as they like."""
        assert executor in self.cluster.executors()
        tree = executor.children(recursive=True) if workers else []
        for process in [executor, *tree]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.killed["executor and workers" if workers else "executor"] += 1


def executor_of(who: Mapping[str, Any]) -> psutil.Process:
    return psutil.Process(who["pid"]).parent().parent()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path, environment={"PYTHONPATH": str(REPOSITORY)}) as running:
        yield running


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", [kafka, postgres], ids=lambda target: target.__name__)
def test_losers_and_the_dead_hold_up_nobody(
    target: Callable[[pytest.FixtureRequest], Target],
    cluster: SparkCluster,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    with Course(tmp_path, cluster, target(request)) as course:
        course.start()
        course.resume()
        course.wait("two batches", lambda: course.batches >= 2, 120)

        losers = []
        for moment in ("written", "unflushed", "flushed"):
            losers.append(course.hang(moment))
            course.goes_on()
            course.settles()
        for moment in ("written", "flushed"):  # the copy loses
            first, second = course.arm(moment, HELD_S), course.arm(moment, copy=True)
            course.taken(first)
            losers.append(course.taken(second))
            course.goes_on()
            course.settles()

        for moment, workers in itertools.product(("written", "flushed"), (True, False)):
            victim = course.hang(moment)
            course.kill_executor(executor_of(victim), workers=workers)
            course.goes_on()
            course.settles()
        for _ in range(RANDOM_KILLS):
            time.sleep(chance.uniform(0, 4))
            living = course.wait("an executor", cluster.executors)
            course.kill_executor(chance.choice(living), workers=chance.random() < 0.5)
        course.goes_on()
        course.settles()

        course.pause()  # no batch comes: a timer's sweep alone
        for moment in ("written", "flushed"):
            file = course.arm(moment)
            course.feed_one()
            victim = course.taken(file)
            course.kill_executor(executor_of(victim), workers=True)
            course.settles()
            course.pause()
        course.resume()

        for moment in ("written", "flushed"):
            course.hang(moment)
            course.kill_driver()
            course.start()
            course.goes_on()
            course.settles()
        for _ in range(RANDOM_KILLS // 2):
            course.goes_on(1)
            time.sleep(chance.uniform(0, 4))
            course.kill_driver()
            course.start()
        course.goes_on()
        course.pause()
        course.settles()
        course.kill_driver()
        course.query.given["trigger"] = {"availableNow": True}
        course.feed_one()
        course.query.finish()
        assert course.target.is_settled(course.target.written())

        ends = course.events("SparkListenerTaskEnd")
        told(course, ends, seed)
        check_losers(ends, losers)
        require_once(course, seed)


@pytest.mark.chaos
def test_an_orphan_that_writes_while_the_query_is_idle(
    cluster: SparkCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As on a machine that was cut off: its task goes on after the batch is committed without it,
    and no other batch comes."""
    with Course(tmp_path, cluster, kafka(request)) as course:
        course.start()
        course.feed_one()
        course.wait("a batch", lambda: course.batches, 120)
        file = course.arm("unwritten")
        course.feed_one()
        orphan = course.taken(file)
        executor, daemon = executor_of(orphan), psutil.Process(orphan["pid"]).parent()
        daemon.kill()  # else it ends its workers
        course.kill_executor(executor, workers=False)
        course.pause()
        course.settles()
        time.sleep(2 * SWEEP_S)  # Spark ends an idle worker after a minute
        before = course.target.written()
        (tmp_path / f"trouble/go-{orphan['pid']}").touch()
        course.wait("the orphan's rows", lambda: course.target.written() != before)
        course.settles()
        course.kill_driver()
        require_once(course, 0)


def told(course: Course, ends: list[dict[str, Any]], seed: int) -> None:
    starts = course.events("SparkListenerTaskStart")
    copies = [e["Task Info"] for e in ends if e["Task Info"]["Speculative"]]
    print(
        f"SEED={seed}: {course.files} batches, {course.query.runs} drivers, killed: "
        f"{dict(course.killed)}; copies started: "
        f"{sum(e['Task Info']['Speculative'] for e in starts)}, ended: {len(copies)}, won: "
        f"{sum(not (c['Killed'] or c['Failed']) for c in copies)}; killed attempts: "
        f"{sum(e['Task Info']['Killed'] for e in ends)}; longest open: {course.longest_s:.1f} s"
    )


def check_losers(ends: list[dict[str, Any]], losers: list[dict[str, Any]]) -> None:
    """Spark says of each that it lost, to which attempt, and which of both was the copy."""
    first = min(e["Driver"] for e in ends)
    for loser in losers:
        attempts = {
            e["Task Info"]["Task ID"]: e["Task Info"]
            for e in ends
            if (e["Driver"], e["Stage ID"]) == (first, loser["stage"])
            and e["Task Info"]["Index"] == loser["index"]
        }
        lost = attempts.pop(loser["task"])
        assert lost["Killed"] or lost["Failed"]
        assert lost["Speculative"] == (loser["number"] > 0)
        won = [a for a in attempts.values() if not (a["Killed"] or a["Failed"])]
        assert len(won) == 1
        assert won[0]["Speculative"] != lost["Speculative"]
        assert won[0]["Host"] != lost["Host"]


def require_once(course: Course, seed: int) -> None:
    counted = Counter(course.target.read())
    doubled = {id_: count for id_, count in counted.items() if count > 1}
    lost = set(range(course.files * ROWS)) - counted.keys()
    assert not lost and not doubled, f"lost {len(lost)}, doubled {len(doubled)}; SEED={seed}"
    assert len(counted) == course.files * ROWS

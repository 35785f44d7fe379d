"""Dead and losing attempts on a real cluster: speculation, and an executor killed with -9.

One job by spark-submit, with the package as a zip file, on two hosts. The test makes one attempt
hang in its pre-commit, with an open transaction, twice: the first time Spark's speculative copy on
the other host must win, the second time its executor is killed. Neither transaction may hold up the
concurrent read_committed reader (their time-out is longer than the test), and in the end every row
is there once. Spark's event log tells its real decisions.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos import checker, workload
from tests.chaos.driver import REPOSITORY, Driver, spark_submit, wait_until
from tests.chaos.history import Pair, window_counts
from tests.chaos.scenario import KafkaScenario, PassthroughScenario
from tests.integration.cluster.spark_cluster import HOSTS, SparkCluster


class ClusterScenario(KafkaScenario):
    """Every row in Kafka, and the counts in SQLite."""

    program = "../integration/cluster/app.py"
    job = "cluster"

    def __init__(
        self, directory: Path, servers: str, cluster: SparkCluster, rate: float = 300.0, **more: Any
    ) -> None:
        self.database, self.trouble = directory / "sink.db", directory / "trouble"
        self.events = directory / "events"
        for made in (self.trouble, self.events):
            made.mkdir()
        more |= {"database": str(self.database), "trouble": str(self.trouble)}
        super().__init__(directory, servers, rate=rate, **more)
        package = shutil.make_archive(
            str(directory / "seamark"), "zip", REPOSITORY / "src", "seamark"
        )
        settings = {
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.5",
            "spark.speculation.minTaskRuntime": "5s",  # longer than it takes to kill an executor
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{self.events}",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        self.launcher = spark_submit(
            *("--master", cluster.url, "--py-files", package),
            *(part for key, value in settings.items() for part in ("--conf", f"{key}={value}")),
        )

    def hang(self) -> dict[str, Any]:
        """Make an attempt hang, and return its identity."""
        (self.trouble / "armed").touch()
        taken = self.trouble / "taken.json"
        wait_until("an attempt that hangs", taken.exists, 60)
        who: dict[str, Any] = json.loads(taken.read_text())
        taken.unlink()
        return who

    def committed(self, epoch: int) -> bool:
        """Return whether this epoch's committed record exists."""
        return (self.job_directory / "epochs" / str(epoch) / "committed.json").exists()

    def spark_events(self, kind: str) -> list[dict[str, Any]]:
        """Return Spark's events of one kind; the last are there when the driver has ended."""
        lines = [line for file in self.events.iterdir() for line in file.read_text().splitlines()]
        return [e for e in map(json.loads, lines) if e["Event"] == kind]

    def counts(self) -> list[Pair]:
        """Return the counts of the input."""
        return window_counts(self.feeder.counted, workload.WINDOW_MS)

    def expected(self) -> int:
        return len(self.feeder.rows) + len(self.counts())

    def visible(self) -> int:
        return len(self.reader.rows) + workload.count_table(self.database, "windows")

    def check(self) -> list[checker.Anomaly]:
        final = workload.read_topic(self.servers, self.output)
        produced = [Pair(*row) for row in self.feeder.rows]
        in_sqlite = workload.read_table(self.database, "windows")
        return [
            *checker.check_rows("Kafka", produced, [Pair(s.key, s.value) for s in final]),
            *checker.check_rows("SQLite counts", self.counts(), in_sqlite),
        ]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path) as running:
        yield running


def test_lost_attempts_hold_up_nobody(
    kafka: LocalKafka, cluster: SparkCluster, tmp_path: Path
) -> None:
    with ClusterScenario(tmp_path, kafka.bootstrap_servers, cluster) as scenario:
        driver = scenario.start()
        driver.wait_for_epochs(3)

        loser = scenario.hang()
        assert "seamark.zip" in loser["code"], "the executors run what --py-files brought"
        wait_for_commit(scenario, driver, loser)

        victim = scenario.hang()
        executor = psutil.Process(victim["pid"]).parent().parent()
        assert executor in cluster.executors()
        executor.kill()
        wait_for_commit(scenario, driver, victim)
        driver.wait_for_epochs(len(driver.epochs()) + 2)

        scenario.drain(driver)
        driver.stop(code=143)
        checker.require_none(scenario.check())
        scenario.require_settled()
        for attempt in (loser, victim):
            swept = rf"aborting \d+ lingering transactions: .*{attempt['transaction']}"
            assert re.search(swept, driver.text()), "the driver aborted what the attempt left open"

        ends = scenario.spark_events("SparkListenerTaskEnd")
        lost, won = by_speculation(ends, loser)
        assert not lost["Speculative"]
        assert {lost["Host"], won["Host"]} == set(HOSTS)
        assert scenario.spark_events("SparkListenerExecutorRemoved")
        again = [e for e in ends if e["Stage ID"] == victim["stage"] and e["Stage Attempt ID"] > 0]
        assert again, "the shuffle files died with the executor, and the stage ran again"


class KeyedScenario(PassthroughScenario, ClusterScenario):
    """An unaligned keyed function that is too slow, before a shuffle into Kafka."""

    program, job = ClusterScenario.program, ClusterScenario.job

    def __init__(self, directory: Path, servers: str, cluster: SparkCluster) -> None:
        super().__init__(directory, servers, cluster, rate=80.0, keyed=True)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_keyed_function_that_ran_twice_fails_its_epoch(
    kafka: LocalKafka, cluster: SparkCluster, tmp_path: Path
) -> None:
    """Its second run ends the epoch at its first row, past the deadline; the first one went on for
    two seconds, and Spark's decision would name its state: the rows between would be lost."""
    with KeyedScenario(tmp_path, kafka.bootstrap_servers, cluster) as scenario:
        driver = scenario.start()
        driver.wait_for_epochs(3)
        victim = scenario.hang()
        psutil.Process(victim["pid"]).parent().parent().kill()
        wait_for_commit(scenario, driver, victim)
        scenario.drain(driver, 600)
        driver.stop(code=143)
        checker.require_none(scenario.check())
        scenario.require_settled()
        failed = rf"epoch={victim['epoch']} status=FAILED .*StateWrittenTwiceError"
        assert re.search(failed, driver.text())


def wait_for_commit(scenario: ClusterScenario, driver: Driver, attempt: dict[str, Any]) -> None:
    """Wait for the commit of an epoch with a hanging attempt."""
    epoch = attempt["epoch"]
    try:
        wait_until(f"epoch {epoch}", lambda: scenario.committed(epoch), 60)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{driver.tail()}") from None


def by_speculation(ends: list[dict[str, Any]], loser: dict[str, Any]) -> tuple[Any, Any]:
    """Return Spark's report of the losing attempt and the speculative winner."""
    attempts = [
        e["Task Info"]
        for e in ends
        if e["Stage ID"] == loser["stage"] and e["Task Info"]["Index"] == loser["index"]
    ]
    (lost,) = (a for a in attempts if a["Task ID"] == loser["task"])
    (won,) = (a for a in attempts if a["Speculative"] and not (a["Killed"] or a["Failed"]))
    return lost, won

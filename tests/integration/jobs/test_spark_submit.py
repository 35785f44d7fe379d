"""A job under spark-submit, where the JVM is the parent: counts to Kafka and SQLite, stopped twice.

The signals go where a user's go: SIGTERM to the process of spark-submit, the JVM alone; Ctrl-C to
its whole process group. Each must leave nothing decided uncommitted and nothing open. The last
driver is plain Python, and everything must be there once.
"""

from __future__ import annotations

import signal
from pathlib import Path

from seamark.dev.kafka import LocalKafka
from seamark.spark.jars import spark_kafka_jars
from tests.chaos.driver import Driver, spark_submit, wait_until
from tests.chaos.scenario import WindowsScenario

STOPPED_WITHIN_S = 30.0


class SubmittedScenario(WindowsScenario):
    def __init__(self, directory: Path, servers: str) -> None:
        self.ended = directory / "ended"
        super().__init__(directory, servers, ended=str(self.ended))


def test_submitted_stopped_and_submitted_again(kafka: LocalKafka, tmp_path: Path) -> None:
    with SubmittedScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        # Nobody brings the Kafka connector: the job adds it to the running JVM.
        scenario.launcher = spark_submit("--master", "local[2]")
        first = scenario.start()
        jars = ",".join(map(str, spark_kafka_jars()))
        scenario.launcher = spark_submit("--master", "local[2]", "--jars", jars)
        second, may_start = scenario.held()  # each comes up while the one before it runs
        stop(scenario, first, signal.SIGTERM, group=False)

        may_start.touch()
        scenario.launcher = SubmittedScenario.launcher
        last, may_start = scenario.held()
        stop(scenario, second, signal.SIGINT, group=True)

        may_start.touch()
        scenario.finish(last)
        scenario.require_settled()


def stop(scenario: SubmittedScenario, driver: Driver, number: signal.Signals, group: bool) -> None:
    driver.wait_for_epochs(3)
    driver.send(number, group=group)
    # As every JVM ended by a signal; Python has no say in it.
    assert driver.wait(STOPPED_WITHIN_S) == 128 + number, driver.tail()
    wait_until("Python has ended too", lambda: not driver.tree(), 10)
    assert scenario.ended.exists(), f"job.run() has not returned\n{driver.tail()}"
    scenario.ended.unlink()
    scenario.require_settled()

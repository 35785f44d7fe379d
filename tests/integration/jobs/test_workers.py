"""Failing tasks: an exception in the middle of the rows, and Python workers killed with -9.

Spark runs the task again; the job goes on without a restart, and the dead attempt's rows never
become visible. Workers dying with an open transaction are in `test_kafka_to_kafka.py`. Speculative
attempts need executors on two hosts at least: in local mode Spark never starts one.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import wait_until
from tests.chaos.scenario import PassthroughScenario


def test_failed_and_killed_tasks(kafka: LocalKafka, tmp_path: Path) -> None:
    marker = tmp_path / "raised"
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers, rate=200.0) as scenario:
        # Slow rows, to have workers nearly always in the middle of a task.
        driver = scenario.start(raise_once=str(marker), slow_s=0.004)
        driver.wait_for_epochs(4)
        assert marker.exists(), "a task has failed"
        for _ in range(3):
            planned = scenario.epochs_in("spark/offsets")
            wait_until("the next epoch", lambda: scenario.epochs_in("spark/offsets") - planned, 30)  # noqa: B023
            time.sleep(0.3)
            random.choice(driver.workers()).kill()
            driver.wait_for_epochs(len(driver.epochs()) + 2)
        assert driver.returncode is None
        assert "crashed" in driver.text(), "a worker died in the middle of a task"
        scenario.finish(driver)
        assert scenario.open_transactions() == []

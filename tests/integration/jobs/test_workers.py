"""Tasks that fail: an exception in the middle of the rows, and Python workers killed with -9.

Spark runs the task again; the job goes on without a restart, and what the dead attempt wrote never
becomes visible. (Speculative attempts need executors on two hosts at least: in local mode Spark
never starts one.)
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.chaos.scenario import PassthroughScenario
from tidemark.dev.kafka import LocalKafka


def test_failed_and_killed_tasks(kafka: LocalKafka, tmp_path: Path) -> None:
    marker = tmp_path / "raised"
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers, rate=400.0) as scenario:
        # Slow rows, so that workers are nearly always in the middle of a task.
        driver = scenario.start(raise_once=str(marker), slow_s=0.004)
        driver.wait_for_epochs(4)
        assert marker.exists(), "a task has failed"
        for _ in range(3):
            random.choice(driver.workers()).kill()
            driver.wait_for_epochs(len(driver.epochs()) + 3)
        assert driver.text().count("aborting") >= 1, driver.tail()
        scenario.finish(driver)
        assert scenario.open_transactions() == []

"""The broker is killed with -9 and started again, while tasks write and while a commit runs.

The job either lives through it, or ends with an error and goes on at its next start; in both cases
nothing is lost or doubled. The moments are seen in the checkpoint directory: Spark's plan of an
epoch (tasks begin), and the prepared record (the decision and the commit come next).
"""

from __future__ import annotations

import time
from pathlib import Path

from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import Driver, wait_until
from tests.chaos.scenario import PassthroughScenario

AWAY_S = 3.0


def go_on(scenario: PassthroughScenario, driver: Driver) -> Driver:
    """Return a driver after its first commit: this one, or the next if this one has given up."""
    before = len(driver.epochs())
    wait_until(
        f"{driver} commits or ends",
        lambda: len(driver.epochs()) >= before + 3 or driver.returncode is not None,
        120,
    )
    if driver.returncode is None:
        return driver
    print(f"{driver} ended with {driver.returncode} when the broker died")
    assert driver.returncode > 0, driver.tail()
    driver.kill_tree()
    driver = scenario.start()
    driver.wait_for_epochs(3)
    return driver


def test_broker_killed_in_pre_commit_and_in_commit(tmp_path: Path) -> None:
    with (
        LocalKafka() as kafka,
        PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario,
    ):
        driver = scenario.start()
        for directory in ("spark/offsets", "epochs"):
            driver.wait_for_epochs(3)
            known = scenario.epochs_in(directory)
            wait_until("the next epoch", lambda: scenario.epochs_in(directory) - known, 30, 0.001)  # noqa: B023
            kafka.kill(1)
            time.sleep(AWAY_S)
            kafka.restart(1)
            driver = go_on(scenario, driver)
        scenario.finish(driver)
        assert scenario.open_transactions() == []

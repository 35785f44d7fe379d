"""An old driver wakes up after its successor has gone on.

A driver is frozen whole (SIGSTOP: Python, JVM, workers) at the worst moment: its transactions are
flushed and stored, its decision is not written. Seen from outside: its prepared record stands and
Spark's commit log does not hold the epoch. The woken driver believes nothing has happened.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import Driver, wait_until
from tests.chaos.scenario import PassthroughScenario


def freeze_before_decision(scenario: PassthroughScenario, driver: Driver) -> int:
    """Freeze `driver` between storing and deciding an epoch, and return the epoch."""
    jvm = driver.jvm().pid
    for _ in range(30):
        epoch = max(scenario.epochs_in("epochs")) + 1
        directory = scenario.job_directory / "epochs" / str(epoch)
        wait_until("a stored epoch", lambda: any(directory.glob("prepared.*")), 30, 0.001)  # noqa: B023
        os.kill(jvm, signal.SIGSTOP)
        driver.freeze()
        if epoch not in scenario.epochs_in("spark/commits"):
            return epoch
        driver.thaw()
    raise AssertionError("too slow to freeze a driver before its decision, 30 times")


def test_old_drivers_that_wake_up(kafka: LocalKafka, tmp_path: Path) -> None:
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        first = scenario.start()
        first.wait_for_epochs(3)
        freeze_before_decision(scenario, first)

        second = scenario.start()
        second.wait_for_epochs(4)
        first.thaw()
        assert first.wait(60) == 1
        assert "FencedError" in first.text(), first.tail()
        first.kill_tree()
        second.wait_for_epochs(len(second.epochs()) + 3)

        # Now the successor dies after it has fenced the frozen driver. That one wakes up and writes
        # its decision, which is void; the successor's successors have to take it back.
        epoch = freeze_before_decision(scenario, second)
        scenario.die_at("predecessors-fenced:1")
        second.thaw()
        assert second.wait(60) == 1
        assert "FencedError" in second.text(), second.tail()
        second.kill_tree()
        assert epoch in scenario.epochs_in("spark/commits"), (
            "the driver that woke up wrote its void decision"
        )
        offsets = scenario.job_directory / "spark/offsets"
        if not (offsets / str(epoch + 1)).exists():
            # It may have been stopped just before; leave what a Spark that planned on leaves.
            shutil.copy(offsets / str(epoch), offsets / str(epoch + 1))
            shutil.copy(offsets / f".{epoch}.crc", offsets / f".{epoch + 1}.crc")
        scenario.die_at("decision-voided:1")
        assert epoch not in scenario.epochs_in("spark/commits")
        scenario.die_at("plan-voided:1")
        assert not (offsets / str(epoch + 1)).exists()

        last = scenario.start()
        last.wait_for_epochs(4)
        scenario.finish(last)
        assert scenario.open_transactions() == []


@pytest.mark.chaos
def test_old_driver_that_wakes_up_in_its_tasks(kafka: LocalKafka, tmp_path: Path) -> None:
    """The old driver's tasks still write when it wakes up: new transactions, stored by nobody. They
    must not become visible, and must not hold up readers."""
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers, rate=300.0) as scenario:
        first = scenario.start(slow_s=0.004)
        first.wait_for_epochs(2)
        wait_until("an open transaction", scenario.open_transactions, 30, pause_s=0.0)
        first.freeze()
        second = scenario.start()
        second.wait_for_epochs(4)
        first.thaw()
        assert first.wait(90) == 1
        assert "FencedError" in first.text(), first.tail()
        first.kill_tree()
        scenario.finish(second)
        assert scenario.open_transactions() == []

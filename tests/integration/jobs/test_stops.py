"""SIGTERM and Ctrl-C at random moments, and how soon a decided epoch is committed.

Each stop must take less than 30 s, end with exit code 0 and leave no transaction open; the next
start goes on. The moments are drawn from a printed seed.
"""

from __future__ import annotations

import random
import signal
import statistics
import time
from pathlib import Path

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import wait_until
from tests.chaos.scenario import PassthroughScenario

STOPPED_WITHIN_S = 30.0
LATENCY_EPOCHS = 40
LATENCY_BOUND_MS = 250
"""The aim is 100 ms on a quiet machine; this machine may be busy with other tests."""


@pytest.mark.chaos
def test_stopped_at_random_moments(kafka: LocalKafka, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        driver, gate = scenario.held()
        for number, group, epochs in [
            (signal.SIGTERM, False, 0),  # in its recovery or its first epoch
            (signal.SIGTERM, False, 2),
            (signal.SIGINT, True, 2),  # as a terminal sends it: to the JVM too
        ]:
            gate.touch()
            if epochs:
                driver.wait_for_epochs(epochs)
                time.sleep(chance.uniform(0, 1))
            else:
                wait_until("a start", lambda: "goes on after" in driver.text(), 60)  # noqa: B023
                time.sleep(chance.uniform(0, 3))
            coming, gate = scenario.held()
            begun = time.monotonic()
            driver.send(number, group=group)
            assert driver.wait(STOPPED_WITHIN_S) == 0, driver.tail()
            print(f"{number.name}: {time.monotonic() - begun:.1f} s")
            assert scenario.open_transactions() == []
            assert "Traceback" not in driver.text(), driver.tail()
            driver.kill_tree()
            driver = coming
        gate.touch()
        driver.wait_for_epochs(2)
        scenario.finish(driver)


def test_time_from_return_to_sink_commit(kafka: LocalKafka, tmp_path: Path) -> None:
    """From foreachBatch's return, over Spark's decision, to the sink commit's start: the median.
    The job logs it for every epoch, from `EpochProgress`."""
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        driver = scenario.start()
        driver.wait_for_epochs(LATENCY_EPOCHS)
        waits_ms = [ms for rows, ms in driver.epochs().values() if rows][5:]
        median = statistics.median(waits_ms)
        print(f"median {median} ms, longest {max(waits_ms)} ms over {len(waits_ms)} epochs")
        assert len(waits_ms) >= 30
        assert median <= LATENCY_BOUND_MS
        scenario.finish(driver)

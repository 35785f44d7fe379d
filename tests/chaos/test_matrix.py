"""``make chaos``: every failpoint, for every app, at the first, second and third time.

One scenario per app and number. Where a recovery passes a point only after a certain death, that
death is made first. The first time of each driver's point must be reached; a later one may not be
(an epoch passes `prepared` once, a recovery `recovered` once): the driver is killed then anyway.
A worker's point kills workers, not the driver, which goes on or gives up after Spark's four tries.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.scenario import (
    EmbeddedScenario,
    PassthroughScenario,
    Scenario,
    WindowsScenario,
)
from tidemark.dev.kafka import LocalKafka
from tidemark.protocol.points import Point

FIRST = {Point.RECOVERY_COMMITTED.value: "decided:2", Point.SINK_ABORTED.value: "prepared:2"}
"""What must have happened before a point is reached."""
NEEDS_TWO_DRIVERS = {Point.DECISION_VOIDED.value, Point.PLAN_VOIDED.value}
DRIVER_POINTS = [point.value for point in Point if point.value not in NEEDS_TWO_DRIVERS]
SINK_POINTS = {
    "passthrough": ["end-transaction-sent"],
    "windows": ["end-transaction-sent", "ledger-committed"],
    "embedded": ["ledger-committed", "file-renamed"],
}
WORKER_POINTS = {
    "passthrough": ["transaction-begun", "transaction-flushed"],
    "windows": ["transaction-begun", "transaction-flushed", "stage-written"],
    "embedded": ["stage-written", "pending-written"],
}
ENOUGH_EPOCHS = 8
PATIENCE_S = 120.0


def reach(scenario: Scenario, failpoint: str) -> bool:
    """Start a driver with a failpoint; return whether it has died there. It is dead afterwards."""
    driver = scenario.start(failpoint)
    deadline = time.monotonic() + PATIENCE_S
    while driver.returncode is None and len(driver.epochs()) < ENOUGH_EPOCHS:
        assert time.monotonic() < deadline, driver.tail()
        time.sleep(0.1)
    died = driver.returncode == -signal.SIGKILL
    driver.kill_tree()
    return died


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("app", ["passthrough", "windows", "embedded"])
def test_every_failpoint(
    app: str, nth: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with scenario_of(app, tmp_path, lambda: request.getfixturevalue("chaos_kafka")) as scenario:
        for point in DRIVER_POINTS + SINK_POINTS[app]:
            if point in FIRST:
                scenario.die_at(FIRST[point])
            died = reach(scenario, f"{point}:{nth}")
            assert died or nth > 1, f"{point} was not reached"
        for point in WORKER_POINTS[app]:
            assert not reach(scenario, f"{point}:{nth}"), "a worker's death is not the driver's"
        last = scenario.start()
        last.wait_for_epochs(3)
        scenario.drain(last, 300)
        last.stop()
        checker.require_none(scenario.check())


def scenario_of(app: str, directory: Path, kafka: Callable[[], LocalKafka]) -> Scenario:
    """Return the app's scenario; `kafka` is called only if it needs a broker."""
    if app == "embedded":
        return EmbeddedScenario(directory)
    servers = kafka().bootstrap_servers
    kinds = {"passthrough": PassthroughScenario, "windows": WindowsScenario}
    return kinds[app](directory, servers)

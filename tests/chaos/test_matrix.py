"""``make chaos``: every row of `matrix.py`, killed at every failpoint, the first, second and third
time it is reached; in the end every sink is read.

One scenario per row and number. Where a recovery passes a point only after a certain death, this
death comes first. The first time of each driver's point must be reached; a later one may not be (an
epoch passes `prepared` once, a recovery `recovered` once): the driver is killed then anyway. A
worker's point kills workers; the driver goes on, or gives up after Spark's four tries.

``make chaos ARGS="-k mysql"`` runs the rows of this name, ``-k mysql-xa-2`` one cell.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.driver import Driver
from tests.chaos.matrix import FIRST, MATRIX, PROTOCOL_POINTS
from tests.chaos.scenario import Scenario

ENOUGH_EPOCHS = 8
PATIENCE_S = 180.0
"""Without one more epoch."""


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("name", MATRIX)
def test_every_failpoint(
    name: str, nth: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    row = MATRIX[name]
    with row.scenario(tmp_path, request.getfixturevalue) as scenario:
        kill_at_each(scenario, [*PROTOCOL_POINTS, *row.committer_points], nth, row.writer_points)
        last = scenario.start()
        last.wait_for_epochs(3, 300)
        scenario.drain(last, 300)
        last.stop()
        checker.require_none(scenario.check())
        scenario.require_settled()


def kill_at_each(
    scenario: Scenario, points: Sequence[str], nth: int, writer_points: Sequence[str] = ()
) -> None:
    """Run a driver for each point; the last points belong to writers, and leave the driver alive.
    The next one comes up while the one before still runs."""
    steps = []
    for point in points:
        if point in FIRST:
            steps.append((FIRST[point], True))
        steps.append((f"{point}:{nth}", True if nth == 1 else None))
    steps += [(f"{point}:{nth}", False) for point in writer_points]
    driver, gate = scenario.held(steps[0][0])
    for number, (failpoint, must_die) in enumerate(steps, 1):
        gate.touch()
        if number < len(steps):
            coming, gate = scenario.held(steps[number][0])
        died = dies(driver)
        assert must_die in (None, died), f"{failpoint}: died there: {died}\n{driver.tail()}"
        driver = coming


def dies(driver: Driver) -> bool:
    """Return whether a driver dies at its failpoint; after some epochs it is killed anyway."""
    seen, since_s = 0, time.monotonic()
    while driver.returncode is None and (epochs := len(driver.epochs())) < ENOUGH_EPOCHS:
        if epochs > seen:  # slow, on a busy machine, but alive
            seen, since_s = epochs, time.monotonic()
        assert time.monotonic() - since_s < PATIENCE_S, driver.tail()
        time.sleep(0.1)
    died = driver.returncode == -signal.SIGKILL
    driver.kill_tree()
    return died

"""Kafka to Kafka behind a slow sink, unaligned: each epoch ends with rows still to be written.

Drivers are killed at each step of an epoch while such rows, the channel state, wait in the
checkpoint; at some steps twice in a row, so the same epoch dies twice. Python workers die too, with
channel state written or read. In the end nothing is lost, doubled or out of order within a key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seamark.dev.kafka import LocalKafka
from tests.chaos.checker import Kind
from tests.chaos.driver import wait_until
from tests.chaos.matrix import UNALIGNED
from tests.chaos.outputs import FilesOutput, SlowSQLiteOutput
from tests.chaos.scenario import PassthroughScenario, Scenario, SinksScenario

POINTS = [
    "epoch-started:4",
    "pre-committed:2",
    "pre-committed:1",  # twice in the same epoch
    "prepared:2",
    "prepared:1",  # twice in the same epoch: a stored, undecided attempt each time
    "decided:2",
    "sealed:2",
    "sink-committed:2",
    "committed:3",
]
SOME = ["pre-committed:2", "prepared:2", "prepared:1", "decided:2", "sealed:2"]
WORKER_POINTS = ["channel-state-written:2", "channel-state-read:2"]
FEW = {"maxOffsetsPerTrigger": "400"}
"""An epoch's rows: two or three epochs long. Sources rest while a whole epoch's rows wait, and the
backlog of a driver's start would take the sink half a minute."""

QUICK = {"slow_sink": False, "source_options": {}}
"""Options of the last driver: a backlog of minutes waits for it."""


def slow(directory: Path, kafka: LocalKafka, **options: Any) -> PassthroughScenario:
    """Return a job whose sink takes 4 ms for a row, and whose epochs take 300 ms: rows come faster
    than they are written, until the input ends."""
    options = {**UNALIGNED, **options}
    return PassthroughScenario(directory, kafka.bootstrap_servers, rate=500.0, **options)


def rows_in_flight(scenario: Scenario) -> dict[int, int]:
    """Return the rows of channel state in each epoch with a prepared record."""
    found = {}
    for path in scenario.job_directory.glob("epochs/*/prepared.*.json"):
        stages = json.loads(path.read_text())["body"].get("channel_state", ())
        segments = [each for stage in stages for lane in stage["lanes"] for each in lane]
        rows = sum(each["file"]["rows"] - each["skip"] for each in segments)
        found[int(path.parent.name)] = rows
    return found


def dead_worker(log: str) -> bool:
    return "SIGKILL" in log or "crashed" in log


@pytest.mark.parametrize("points", [SOME, pytest.param(POINTS, marks=pytest.mark.chaos)])
def test_killed_while_rows_are_in_flight(
    kafka: LocalKafka, tmp_path: Path, points: list[str]
) -> None:
    with slow(tmp_path, kafka, source_options=FEW) as scenario:
        driver = scenario.die_at_each(points, then=WORKER_POINTS[0])
        killed = rows_in_flight(scenario)
        assert sum(rows > 0 for rows in killed.values()) > len(killed) / 2, killed
        for following in [*WORKER_POINTS[1:], None]:
            coming, gate = scenario.held(following, **({} if following else QUICK))
            wait_until("a dead worker", lambda: dead_worker(driver.text()), 120)  # noqa: B023
            before = len(driver.epochs())
            wait_until("epochs after it", lambda: len(driver.epochs()) > before + 2, 120)  # noqa: B023
            driver.kill_tree()
            gate.touch()
            driver = coming
        scenario.finish(driver)
        assert scenario.open_transactions() == []


def test_rows_in_flight_are_written_without_new_ones_and_by_an_aligned_run(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    """The input ends while rows wait. One run writes some of them, the next all the rest."""
    with slow(tmp_path, kafka) as scenario:
        driver = scenario.start()
        driver.wait_for_epochs(6)
        scenario.feeder.close()
        driver.stop()
        left = rows_in_flight(scenario)
        assert left[max(left)] > 0, left
        later = scenario.start(aligned_timeout="100ms")
        wait_until("another epoch", lambda: len(later.epochs()) > 2, 120)
        later.stop()
        del scenario.options["aligned_timeout"]  # switched off
        scenario.finish(scenario.start(slow_sink=False))
        left = rows_in_flight(scenario)
        assert left[max(left)] == 0
        assert scenario.open_transactions() == []


def test_two_sinks_with_rows_in_flight(tmp_path: Path) -> None:
    """SQLite is slow and files are not: both have the same rows after each kill."""
    outputs = [SlowSQLiteOutput(tmp_path), FilesOutput(tmp_path)]
    settings = {"unaligned": True, "aligned_timeout": "300ms"}
    with SinksScenario(tmp_path, outputs, rate=150.0, settings=settings) as scenario:
        driver = scenario.die_at_each(
            ["pre-committed:3", "prepared:2", "prepared:1", "sink-committed:3", "sealed:2"]
        )
        killed = rows_in_flight(scenario)
        assert any(killed.values()), killed
        scenario.finish(driver)
        scenario.require_settled()


@pytest.mark.chaos
def test_at_least_once_loses_no_row_in_flight(kafka: LocalKafka, tmp_path: Path) -> None:
    """Its sinks commit before the decision, so a dead epoch's rows come twice: nothing else."""
    with slow(tmp_path, kafka, mode="at-least-once") as scenario:
        driver = scenario.die_at_each(
            ["pre-committed:3", "prepared:2", "prepared:1", "decided:2", "committed:3"],
            then="channel-state-read:2",
        )
        killed = rows_in_flight(scenario)
        assert sum(rows > 0 for rows in killed.values()) > len(killed) / 2, killed
        wait_until("a dead worker", lambda: dead_worker(driver.text()), 120)
        driver.kill_tree()
        driver = scenario.start(slow_sink=False)
        scenario.drain(driver)
        driver.stop()
        found = scenario.check()
        assert {anomaly.kind for anomaly in found} == {Kind.DUPLICATED}, found[:5]
        assert scenario.open_transactions() == []

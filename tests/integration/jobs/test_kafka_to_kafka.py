"""Kafka to Kafka, killed with -9 at every failpoint: the most important test there is.

One scenario: a producer never stops and a read_committed reader never stops, while driver after
driver is started with a failpoint and dies by its own SIGKILL there (its Spark JVM with it). The
order is such that each point is really reached: a recovery only commits what a death after the
decision has left. In the end a last driver drains the input, is stopped by SIGTERM, and both
readers are judged: nothing lost, doubled, reordered within a key, or shown too early.

`decision-voided` and `plan-voided` need a driver that wakes up: see `test_two_drivers.py`.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.scenario import PassthroughScenario
from tidemark.dev.kafka import LocalKafka
from tidemark.protocol.points import Point

EPOCH_POINTS = [
    "epoch-started:3",
    "pre-committed:2",
    "fence-checked:2",
    "prepared:2",
    "end-transaction-sent:18",  # past the aborts of its recovery, in the middle of a commit
    "recovery-committed:1",
    "decided:2",
    "recovery-committed:1",  # again: the death before it came at another step of the same commit
    "sealed:2",
    "sink-committed:1",
    "committed:3",
]
RECOVERY_POINTS = [
    "generation-claimed:1",
    "predecessor-sealed:1",
    "predecessors-fenced:1",
    "sink-aborted:1",
    "recovered:1",
]
WORKER_POINTS = ["transaction-begun:3", "transaction-flushed:3"]
ELSEWHERE = {"decision-voided", "plan-voided"}


def test_killed_at_every_failpoint(kafka: LocalKafka, tmp_path: Path) -> None:
    reached = {point.split(":")[0] for point in EPOCH_POINTS + RECOVERY_POINTS}
    assert {point.value for point in Point} - ELSEWHERE <= reached, "a new point needs its place"
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        for point in EPOCH_POINTS:
            scenario.die_at(point)
        scenario.die_at("prepared:1")  # leaves a stored, undecided attempt to each of these
        for point in RECOVERY_POINTS:
            driver = scenario.die_at(point)
            assert "goes on after epoch" not in driver.text(), "it died in its recovery"
        for point in WORKER_POINTS:
            # Here the Python worker dies, and each that replaces it; Spark runs its task again.
            driver = scenario.start(point)
            driver.wait_for_epochs(8)
            assert driver.returncode is None
            assert "SIGKILL" in driver.text() or "crashed" in driver.text(), "no worker died"
            driver.kill_tree()
        last = scenario.start()
        last.wait_for_epochs(5)
        scenario.finish(last)
        assert scenario.open_transactions() == []

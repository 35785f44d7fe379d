"""Kafka to Kafka, killed with -9 at every failpoint: the most important test there is.

One scenario: a producer never stops and a read_committed reader never stops, while driver after
driver is started with a failpoint and dies by its own SIGKILL there (its Spark JVM with it). The
order lets each point really be reached: a recovery commits only after a death behind the decision.
At two points drivers die twice in a row. In the end a last driver drains the input, is stopped by
SIGTERM, and both readers are judged: nothing lost, doubled, reordered within a key, or shown too
early.

`decision-voided` and `plan-voided` need a sleeping driver to wake up: see `test_two_drivers.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.dev.kafka import LocalKafka
from seamark.protocol.points import Point
from tests.chaos.scenario import PassthroughScenario

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
    "sealed:1",  # twice in a row at the same point: now in its recovery
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
ELSEWHERE = {"decision-voided", "plan-voided", "superseded"}


@pytest.mark.timeout(1200)
def test_killed_at_every_failpoint(kafka: LocalKafka, tmp_path: Path) -> None:
    reached = {point.split(":")[0] for point in EPOCH_POINTS + RECOVERY_POINTS}
    assert {point.value for point in Point} - ELSEWHERE <= reached, "a new point needs its place"
    with PassthroughScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        # The last death but these leaves a stored, undecided attempt to each recovery.
        driver = scenario.die_at_each(
            [*EPOCH_POINTS, "prepared:1", "prepared:1", *RECOVERY_POINTS], then=WORKER_POINTS[0]
        )
        for died in scenario.drivers[-1 - len(RECOVERY_POINTS) : -1]:
            assert "goes on after epoch" not in died.text(), f"{died} died after its recovery"
        for following in [*WORKER_POINTS[1:], None]:
            # Here the Python worker dies, and each replacement; Spark runs its task again.
            driver.wait_for_epochs(8)
            assert "SIGKILL" in driver.text() or "crashed" in driver.text(), "no worker died"
            # The dead attempt's open transactions were found at the broker.
            assert "aborting" in driver.text(), driver.tail()
            driver.kill_tree()
            driver = scenario.start(following)
        scenario.finish(driver)
        assert scenario.open_transactions() == []

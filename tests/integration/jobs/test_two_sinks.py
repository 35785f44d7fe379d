"""Kafka to windowed counts in Kafka and SQLite, killed between and around the sinks' commits.

One scenario as in `test_kafka_to_kafka.py`. Each window must be in each sink exactly once, both
sinks must hold the same windows, and the raw rows, a third sink, each input row once.
"""

from __future__ import annotations

from pathlib import Path

from seamark.dev.kafka import LocalKafka
from tests.chaos.scenario import WindowsScenario

POINTS = [
    "sink-committed:4",  # the second epoch: Kafka shows its counts, SQLite not yet
    "recovery-committed:1",
    "ledger-committed:3",  # SQLite shows one table's rows of the epoch, but nobody has been told
    "sealed:3",
    "sink-aborted:1",  # one sink's transactions of the dead driver are aborted, the others' not
    "prepared:3",
    "sink-committed:5",  # Kafka and the first table, but not the second
]


def test_killed_between_the_sinks(kafka: LocalKafka, tmp_path: Path) -> None:
    with WindowsScenario(tmp_path, kafka.bootstrap_servers) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(5)
        scenario.finish(driver)
        assert len(scenario.counts()) > 100, "enough windows to be torn"
        assert scenario.open_transactions() == []

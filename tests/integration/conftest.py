"""One real server of each kind for the whole session: they are everybody's.

A test may not kill or pause it: it starts its own.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from seamark.dev.kafka import LocalKafka
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """A broker with time-outs of transactions checked every second (Kafka's default is ten)."""
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with LocalKafka(overrides=quick) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def topic(kafka: LocalKafka) -> Callable[..., str]:
    """Return a function to make an empty topic: `topic(partitions=1) -> name`.

    It returns when the broker has every partition: markers of a transaction that ends before (some
    milliseconds after the topic's creation) may wait for Kafka's `request.timeout.ms`, 30 seconds.
    """
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

    prefix, numbers = f"t{uuid.uuid4().hex[:8]}", itertools.count(1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def create(partitions: int = 1) -> str:
        name = f"{prefix}-{next(numbers)}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(300)
        ends = {TopicPartition(name, number): OffsetSpec.latest() for number in range(partitions)}
        deadline = time.monotonic() + 10  # librdkafka may find no leader for a minute
        while time.monotonic() < deadline and any(
            told.exception(30) for told in admin.list_offsets(ends).values()
        ):
            time.sleep(0.02)
        return name

    return create

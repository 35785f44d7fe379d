"""One real broker for the whole session, and topics of one's own on it.

A test that kills or pauses a broker starts its own `LocalKafka`; this one is everybody's.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest

from tidemark.dev.kafka import LocalKafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    """A broker that aborts a timed-out transaction within a second (Kafka's default is ten)."""
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with LocalKafka(overrides=quick) as cluster:
        yield cluster


@pytest.fixture
def topic(kafka: LocalKafka) -> Callable[..., str]:
    """Return a function that makes an empty topic: `topic(partitions=1) -> name`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    prefix, numbers = f"t{uuid.uuid4().hex[:8]}", itertools.count(1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def create(partitions: int = 1) -> str:
        name = f"{prefix}-{next(numbers)}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    return create

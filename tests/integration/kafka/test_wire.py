"""The contract with kafka-python's private calls (`sinks/kafka/wire.py`), on a real broker.

A new kafka-python that fails here needs a change there, and nowhere else.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import CoordinatorNotAvailableError, KafkaError
from kafka.future import Future
from kafka.protocol.admin.transactions import DescribeTransactionsRequest

import seamark
from seamark.dev.kafka import LocalKafka
from seamark.sinks.kafka.wire import Wire
from tests.chaos.driver import wait_until
from tests.integration.kafka import sink_kit as kit


@pytest.fixture
def wire(kafka: LocalKafka) -> Iterator[Wire]:
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        wire = Wire(admin)
        wait_until("a new broker has its coordinators", lambda: has_coordinators(wire), 60)
        yield wire


def has_coordinators(wire: Wire) -> bool:
    """Ask for both kinds: a new broker makes their topics at the first request."""
    try:
        for groups in (True, False):
            wire.run(lambda groups=groups: wire.coordinators(["first"], groups=groups), 30)
    except CoordinatorNotAvailableError:
        return False
    return True


def test_requests_go_to_the_coordinator_at_once_and_are_answered_in_turn(wire: Wire) -> None:
    ids = [f"wire-{uuid.uuid4().hex}" for _ in range(3)]

    async def ask() -> list[tuple[str, int]]:
        nodes = await wire.coordinators(ids)
        sent = [
            wire.send(DescribeTransactionsRequest(transactional_ids=[i]), nodes[i], 10) for i in ids
        ]
        states = [(await wire.wait(answer, 10)).transaction_states[0] for answer in sent]
        return [(state.transactional_id, state.error_code) for state in states]

    unknown = [(i, 105) for i in ids]
    # Until a new broker has read its topic, it answers that it is no coordinator.
    wait_until("the coordinator answers", lambda: wire.run(ask, 30) == unknown, 60)


def test_the_cluster_is_known(wire: Wire) -> None:
    nodes = wire.nodes()
    assert len(set(nodes)) == len(nodes) >= 1
    for groups in (True, False):
        found = wire.run(lambda groups=groups: wire.coordinators(["a", "b"], groups=groups), 30)
        assert set(found) == {"a", "b"} and set(found.values()) <= set(nodes)


def test_a_wait_has_an_end(wire: Wire) -> None:
    async def wait() -> None:
        await wire.wait(Future(), 60)

    begun = time.monotonic()
    with pytest.raises(KafkaError):
        wire.run(wait, 0.5)
    assert time.monotonic() - begun < 50


def test_a_node_that_does_not_exist_is_an_error(wire: Wire) -> None:
    async def ask() -> None:
        request = DescribeTransactionsRequest(transactional_ids=["a"])
        await wire.wait(wire.send(request, 4711, 1), 2)

    with pytest.raises((KafkaError, OSError)):
        wire.run(ask, 5)


def test_an_open_transaction_is_seen_in_its_partition(kafka: LocalKafka, wire: Wire) -> None:
    topic = f"wire-{uuid.uuid4().hex}"
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    at = TopicPartition(topic, 0)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"row", partition=0)
    producer.flush(30)
    asked = {at: OffsetSpec.LATEST}
    stable, end = (
        wire.run(lambda level=level: wire.offsets(asked, level), 30)[at].offset
        for level in ("read_committed", "read_uncommitted")
    )
    (active,) = wire.run(lambda: wire.producers([at]), 30)[at].active_producers
    assert (stable, end, active.current_transaction_start_offset) == (0, 1, 0)
    producer.abort_transaction(30)


def test_partitions_that_the_cluster_has(wire: Wire, topic: Callable[..., str]) -> None:
    here = TopicPartition(topic(2), 1)
    asked = [TopicPartition(here.topic, 2), here, TopicPartition(f"{here.topic}-none", 0)]
    assert wire.run(lambda: wire.existing(asked), 30) == [here]


def test_the_offsets_of_groups(wire: Wire, kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(2)
    at, other = TopicPartition(name, 0), TopicPartition(name, 1)
    kit.commit_offset(kafka.bootstrap_servers, name, name, 3)
    found = wire.run(lambda: wire.group_offsets([at, other]), 30)
    assert found[name] == {at: 3, other: -1}


def test_no_other_module_uses_private_calls() -> None:
    root = Path(seamark.__file__).parent
    private = re.compile(r"\._manager\b|\._async_\w+|\._find_coordinator_ids?\b|\.cluster\._\w+")
    users = {
        p.relative_to(root).as_posix() for p in root.rglob("*.py") if private.search(p.read_text())
    }
    assert users == {"sinks/kafka/wire.py"}

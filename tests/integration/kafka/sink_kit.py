"""Common parts of the Kafka sink's tests: sinks on a topic, batches of numbers, and readers.

A row is one number: its key is the number modulo 7, its value the number, both as text.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from seamark.contracts.sink import AbortOutcome, CommitOutcome, SinkContext, WriterContext
from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.committer import KafkaCommitter

UID = "orders-out"


def new_job() -> str:
    return uuid.uuid4().hex


def sink_on(servers: str, topic: str | None, **more: Any) -> KafkaSink:
    more.setdefault("transactional_id_prefix", f"test-{topic}")
    return KafkaSink(servers, topic=topic, **more)


def driver(job: str, generation: int = 1, *, uid: str = UID, name: str = "orders") -> SinkContext:
    return SinkContext(job, name, uid, generation, checkpoint_interval_s=5.0)


def attempt(
    job: str, generation: int = 1, epoch: int = 0, *, settled: int = -1, uid: str = UID
) -> WriterContext:
    return WriterContext(job, uid, generation, epoch, 0, 0, settled_epoch=settled)


def numbers(values: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([b"%d" % (n % 7) for n in values], pa.binary()),
            "value": pa.array([b"%d" % n for n in values], pa.binary()),
        }
    )


def prepare(
    sink: KafkaSink, context: WriterContext, values: Sequence[int], *, topic: str | None = None
) -> KafkaCommittable:
    """Write the numbers; `topic` names their topic, for a sink without one."""
    writer, batch = sink.create_writer(context), numbers(values)
    if topic is not None:
        batch = batch.append_column("topic", pa.array([topic] * len(values)))
    writer.write(batch)
    (committable,) = writer.prepare_commit()
    return committable


@contextlib.contextmanager
def committing(
    sink: KafkaSink, context: SinkContext, *, preflight: bool = False
) -> Iterator[KafkaCommitter]:
    committer = sink.create_committer(context)
    try:
        if preflight:
            committer.preflight()
        yield committer
    finally:
        committer.close()


def until_proved(call: Any, items: Sequence[Any], deadline_s: float = 60) -> list[Any]:
    """Call until no outcome is RETRY, and return the outcomes."""
    deadline = time.monotonic() + deadline_s
    while True:
        outcomes = list(call(items))
        if not any(outcome.name == "RETRY" for outcome in outcomes):
            return outcomes
        assert time.monotonic() < deadline, f"still {outcomes}"
        time.sleep(0.05)


def abort_all(sink: KafkaSink, job: str, uid: str = UID) -> None:
    """Abort a test's open transactions, lest they hold up other readers."""
    with committing(sink, driver(job, 999, uid=uid)) as committer:
        left = [found.committable for found in committer.list_lingering()]
        assert set(until_proved(committer.abort, left)) <= {AbortOutcome.ABORTED}


def records(servers: str, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Return every record visible up to the end, partition by partition in order."""
    from confluent_kafka import Consumer, TopicPartition

    wait_for_markers(servers)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: dict[int, list[Any]] = {partition: [] for partition in partitions}
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, "the reader came to no end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                if message.error().name() == "_PARTITION_EOF":
                    ended.add(message.partition())
                continue
            found[message.partition()].append(message)
        return [message for _, some in sorted(found.items()) for message in some]
    finally:
        consumer.close()


def commit_offset(servers: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """Let a consumer group commit an offset of a partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    finally:
        consumer.close()


def wait_for_markers(servers: str) -> None:
    """Wait until every outcome is marked in its partitions: the broker answers EndTxn when the
    outcome is safe, and marks the partitions, for readers to see it, a moment later."""
    from kafka.admin import KafkaAdminClient

    being_marked = ["PrepareCommit", "PrepareAbort"]
    deadline = time.monotonic() + 30
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        while any((found := admin.list_transactions(state_filters=being_marked)).values()):
            assert time.monotonic() < deadline, f"the brokers do not mark the partitions: {found}"
            time.sleep(0.05)


def visible(servers: str, topic: str) -> list[int]:
    return sorted(int(message.value()) for message in records(servers, topic))


def every_step_of_the_protocol(sink: KafkaSink, servers: str, topic: str) -> None:
    """Prepare two transactions; commit one and abort the other in a second driver, after its
    preflight. `servers` and `topic` are for the reader."""
    job = new_job()
    kept = prepare(sink, attempt(job), range(100))
    dropped = prepare(sink, attempt(job), range(100, 200))
    with committing(sink, driver(job, 2), preflight=True) as committer:
        open_ones = {found.committable.handle for found in committer.list_lingering()}
        assert open_ones == {kept.handle, dropped.handle}
        assert until_proved(committer.commit, [kept]) == [CommitOutcome.COMMITTED]
        assert until_proved(committer.abort, [dropped]) == [AbortOutcome.ABORTED]
        assert list(committer.list_lingering()) == []
    assert visible(servers, topic) == list(range(100))

"""The demo's side of Kafka: topics, the clicks that go in, and a reader of committed rows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

READ_TIMEOUT_S = 60


def make_topics(servers: str, names: list[str], partitions: int) -> None:
    """Make the topics; raises KafkaException when one cannot be made.

    They keep rows for ever: by their timestamps the clicks are older than Kafka's usual week.
    """
    client = AdminClient({"bootstrap.servers": servers})
    topics = [NewTopic(name, partitions, config={"retention.ms": "-1"}) for name in names]
    for made in client.create_topics(topics).values():
        made.result()


def produce_clicks(servers: str, topic: str, clicks: pa.RecordBatch, partitions: int) -> None:
    """Produce the clicks round robin, user as key, the click's time as Kafka's timestamp.

    Each partition has them in order. Kafka's timestamps have milliseconds: times are rounded down,
    which changes no window's count.
    """
    # Else what is sent again comes behind what was sent after it, too late for its windows.
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "enable.idempotence": True})
    failures: list[KafkaError] = []
    times_ms = clicks.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False)
    columns = (times_ms.cast(pa.int64()), clicks.column("user"), clicks.column("page"))
    for number, (at, user, page) in enumerate(
        zip(*(column.to_pylist() for column in columns), strict=True)
    ):
        while True:
            try:
                producer.produce(
                    topic, page, user, number % partitions, timestamp=at,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(READ_TIMEOUT_S)
    if left or failures:
        raise RuntimeError(f"{left} clicks are not delivered; {failures[:1]}")


class CommittedReader:
    """Reads a topic from its start, as ``read_committed``, outside of any consumer group."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "demo",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._partitions = partitions
        self._visible = 0
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def visible(self) -> int:
        """Return how many rows were readable so far."""
        while messages := self._consumer.consume(10_000, timeout=0.05):
            self._visible += sum(message.error() is None for message in messages)
        return self._visible

    def read_all(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of every row up to the last committed one. For a new reader."""
        ended: set[int] = set()
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(ended) < self._partitions:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the end of a partition was not reached in {READ_TIMEOUT_S} s")
            for message in self._consumer.consume(10_000, timeout=1):
                if message.error() is None:
                    yield message.key(), message.value()
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise RuntimeError(str(message.error()))

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

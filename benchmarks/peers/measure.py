"""What is measured from outside, the same way for every engine.

Time runs from the moment at which the engine says that its job runs until the last row is visible
to a `read_committed` reader. Nobody reads meanwhile: a reader would take CPU from the engine.
`Visible` asks the broker every POLL_S for the offsets up to which such a reader sees; once they
stand still a reader looks for what is missing, and the time is that of the first answer that
covered the last row needed. `Tree` samples the CPU time and the memory (PSS) of the engine's
processes.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.peers.work import PARTITIONS, Record
from benchmarks.process_tree import cpu_s

POLL_S = 0.02
SAMPLE_S = 0.25
QUIET_S = 1.5
STALLED_S = 180


class Tree(threading.Thread):
    """Samples a tree of processes from now until `close`: (time, CPU seconds, bytes)."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._end = threading.Event()
        self.samples = [(time.time(), cpu_s(pid=pid), memory_bytes(pid))]
        self.start()

    def run(self) -> None:
        while not self._end.wait(SAMPLE_S):
            with suppress(psutil.NoSuchProcess):
                self.samples.append((time.time(), cpu_s(pid=self._pid), memory_bytes(self._pid)))

    def close(self, until: float) -> tuple[float, float]:
        """Return the CPU seconds from the first sample to the first after `until`, and the most
        memory in MB."""
        self._end.set()
        self.join()
        last = next((s for s in self.samples if s[0] >= until), self.samples[-1])
        used = [s[2] for s in self.samples if s[0] <= last[0]]
        return last[1] - self.samples[0][1], max(used) / 1e6


def memory_bytes(pid: int) -> int:
    """Return the memory of a tree; pages that processes share count once."""
    root, total = psutil.Process(pid), 0
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += process.memory_full_info().pss
    return total


class Visible(threading.Thread):
    """Notes from now on when which offsets of a topic became visible."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        from confluent_kafka.admin import AdminClient

        self._admin, self._topic = AdminClient({"bootstrap.servers": servers}), topic
        self._end = threading.Event()
        self.history: list[tuple[float, list[int]]] = [(time.time(), self._ask())]
        self.start()

    def _ask(self) -> list[int]:
        from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        latest = {TopicPartition(self._topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
        until = time.time() + 30
        while True:
            found = self._admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
            try:
                return [found[partition].result(30).offset for partition in latest]
            except KafkaException:  # a new topic has no leader yet
                if time.time() > until:
                    raise
                time.sleep(POLL_S)

    def run(self) -> None:
        while not self._end.wait(POLL_S):
            offsets = self._ask()
            if offsets != self.history[-1][1]:
                self.history.append((time.time(), offsets))

    def covered(self, needed: list[int]) -> float:
        """Return when all of these offsets were visible."""
        return next(
            at
            for at, seen in self.history
            if all(s >= n for s, n in zip(seen, needed, strict=True))
        )

    def close(self) -> None:
        self._end.set()
        self.join()


class Reader:
    """Reads a topic from its beginning as a `read_committed` reader."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        self.rows = 0
        self.next = [0] * PARTITIONS
        """The offset after the last row of each partition."""

    def batch(self, patience_s: float) -> list[Any]:
        """Return the next rows; none if nothing came for so long."""
        batch = [m for m in self._consumer.consume(10_000, patience_s) if m.error() is None]
        self.rows += len(batch)
        for message in batch:
            self.next[message.partition()] = message.offset() + 1
        return batch

    def messages(self, patience_s: float = 0.5) -> Iterator[Any]:
        """Yield what is there; end when nothing came for so long."""
        while batch := self.batch(patience_s):
            yield from batch

    def close(self) -> None:
        self._consumer.close()


def wait_for_rows(
    visible: Visible, reader: Reader, expected: int, require_alive: Callable[[], None]
) -> tuple[float, set[bytes]]:
    """Return when the last of so many different values became visible, and the values."""
    values: set[bytes] = set()
    seen_at = time.time()
    while True:
        time.sleep(0.1)
        require_alive()
        if time.time() - visible.history[-1][0] < QUIET_S:
            continue
        before = len(values)
        for message in reader.messages():
            values.add(message.value())
        if len(values) >= expected:
            return visible.covered(reader.next), values
        if len(values) > before:
            seen_at = time.time()
        if time.time() - max(seen_at, visible.history[-1][0]) > STALLED_S:
            raise RuntimeError(f"{len(values)} of {expected} rows came, and no more")


def fill(servers: str, topic: str, records: Iterator[Record]) -> int:
    """Produce records, and return how many."""
    from confluent_kafka import Producer

    queue = {"linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    producer, count = Producer({"bootstrap.servers": servers, **queue}), 0
    for partition, key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, partition)
                break
            except BufferError:
                producer.poll(0.05)
        count += 1
        if count % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return count


def create_topics(servers: str, names: list[str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(n, PARTITIONS, 1) for n in names]).values():
        made.result(30)


def delete_topics(servers: str, names: list[str]) -> None:
    """Free the disk; the next run has a topic of its own."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    for gone in admin.delete_topics(names).values():
        gone.result(30)

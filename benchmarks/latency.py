"""Latency of a row: from `produce` to the reader, micro-batches beside real time, real Kafka.

    python -m benchmarks.latency [--rate 200] [--seconds 60] [--warm-up 30]

One program, one broker on this machine, topics of PARTITIONS partitions, one job after another.
Each row carries the moment at which it was produced; a reader (`read_committed`) subtracts it from
the moment at which it gets the row. Producer and reader do not linger. Rows of the warm-up do not
count. `load` is that of the machine at the end.

Micro-batches run one after another without pause (`interval` 0), as soon as they can. In real time
an epoch takes 10 s at-least-once, and 1 s exactly-once, since rows are visible at its end.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

import seamark as sm
from seamark.dev.kafka import LocalKafka

PARTITIONS = 2
VARIANTS: list[tuple[Literal["micro-batch", "real-time"], str, str]] = [
    ("micro-batch", "at-least-once", "0s"),
    ("real-time", "at-least-once", "10s"),
    ("micro-batch", "exactly-once", "0s"),
    ("real-time", "exactly-once", "1s"),
]


class Reader(threading.Thread):
    """Reads `topic` from now on; `seconds` has the latency of each row with the moment it was
    produced."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(name="reader", daemon=True)
        from confluent_kafka import Consumer, TopicPartition

        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        self._end = threading.Event()
        self.seconds: list[tuple[float, float]] = []

    def run(self) -> None:
        while not self._end.is_set():
            for message in self._consumer.consume(500, 0.01):
                if message.error() is None:
                    produced = float(message.value())
                    self.seconds.append((produced, time.time() - produced))
        self._consumer.close()

    def close(self) -> None:
        """Read no more."""
        self._end.set()
        self.join()


def feed(servers: str, topic: str, rate: int, until: float) -> None:
    """Produce `rate` rows a second until the time `until`, each with the present time."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    due, number = time.time(), 0
    while (now := time.time()) < until:
        while due <= now:
            producer.produce(topic, f"{time.time():.6f}", str(number), number % PARTITIONS)
            due, number = due + 1 / rate, number + 1
        producer.poll(0)
        time.sleep(0.002)
    producer.flush()


@contextmanager
def topics(servers: str) -> Iterator[tuple[str, str]]:
    """Make two topics of PARTITIONS partitions, with new names."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = uuid.uuid4().hex[:8]
    made = f"{name}-in", f"{name}-out"
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in made]).values():
        future.result(30)
    yield made


def measure(
    servers: str,
    variant: tuple[Literal["micro-batch", "real-time"], Any, str],
    arguments: argparse.Namespace,
) -> list[float]:
    """Run one job, and return the latencies of its counted rows, ascending, in milliseconds."""
    execution, delivery, interval = variant
    with topics(servers) as (source, target), tempfile.TemporaryDirectory() as storage:
        job = sm.Job(
            f"latency-{execution}-{delivery}",
            sm.CheckpointConfig(storage=storage, interval=interval, timeout="1min"),
        )
        rows = job.source(sm.KafkaSource(servers, source, starting_offsets="earliest"), uid="in")
        sink = sm.KafkaSink(
            servers,
            topic=target,
            delivery_guarantee=delivery,
            transactional_id_prefix=target,
            producer_options={"linger.ms": 0},
        )
        job.sink(rows.select("key", "value"), sink, uid="out")
        reader = Reader(servers, target)
        reader.start()
        running = threading.Thread(target=job.run, kwargs={"execution": execution})
        running.start()
        counted_from = time.time() + arguments.warm_up
        until = counted_from + arguments.seconds
        feed(servers, source, arguments.rate, until)
        time.sleep(3)  # the last rows' epoch
        job.stop()
        running.join()
        reader.close()
    found = [s for produced, s in reader.seconds if counted_from <= produced]
    expected = arguments.rate * arguments.seconds
    if len(found) < 0.98 * expected:
        raise RuntimeError(f"{variant}: {len(found)} of {expected} rows came")
    return sorted(1000 * s for s in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=200, help="rows a second")
    parser.add_argument("--seconds", type=float, default=60, help="counted seconds of each job")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds before them")
    arguments = parser.parse_args()
    table = Table("execution", "guarantee", "interval", "rows", "p50 ms", "p99 ms", "max ms")
    with LocalKafka() as kafka:
        for variant in VARIANTS:
            ms = measure(kafka.bootstrap_servers, variant, arguments)
            figures = ms[len(ms) // 2], ms[len(ms) * 99 // 100], ms[-1]
            table.add_row(*variant, str(len(ms)), *(f"{figure:.0f}" for figure in figures))
    Console(width=100).print(table, f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

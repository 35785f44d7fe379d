"""Latency of a row: from `produce` to the reader, micro-batches beside real time, real Kafka.

    python -m benchmarks.latency [--rate 200] [--seconds 60] [--warm-up 30]
    python -m benchmarks.latency --backlog 4000000 [--python]

One program, one broker on this machine, topics of PARTITIONS partitions, one job after another.
Each row carries the moment at which it was produced; a reader (`read_committed`) subtracts it from
the moment at which it gets the row. Producer and reader do not linger. Rows of the warm-up do not
count. `load` is that of the machine at the end.

Micro-batches run one after another without pause (`interval` 0), as soon as they can. In real time
an epoch takes 10 s at-least-once, and 1 s or half of one exactly-once, since rows are visible at
its end.

With ``--backlog`` a topic holds so many rows of 100 bytes before a job in real time starts. The
rate is that of its tasks together while the middle 80 % of the rows arrive at the broker. With
``--python`` the rows pass a function in Python, and are written by Python.
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
    ("real-time", "exactly-once", "500ms"),
]


class Reader(threading.Thread):
    """Reads `topic` from now on; `seconds` has the latency of each row with the moment it was
    produced."""

    def __init__(self, servers: str, topic: str, partitions: int = PARTITIONS) -> None:
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
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
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


def a_job(
    servers: str,
    topics: tuple[str, str],
    storage: str,
    variant: tuple[str, Any, str],
    *,
    python: bool = False,
) -> sm.Job:
    """Return a job that copies the first topic into the second."""
    execution, delivery, interval = variant
    source, target = topics
    job = sm.Job(
        f"latency-{execution}-{delivery}",
        sm.CheckpointConfig(storage=storage, interval=interval, timeout="2min"),
    )
    rows = job.source(sm.KafkaSource(servers, source, starting_offsets="earliest"), uid="in")
    sink = sm.KafkaSink(
        servers,
        topic=target,
        delivery_guarantee=delivery,
        transactional_id_prefix=target,
        producer_options={"linger.ms": 0},
    )
    passed = rows.select("key", "value")
    if python:
        passed = sm.process(passed, lambda batch: batch, "key BINARY, value BINARY", uid="same")
    job.sink(passed, sink, uid="out")
    return job


def measure_backlog(servers: str, delivery: str, rows: int, *, python: bool) -> float:
    """Return the rows a second with which a job in real time works off a full topic."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    with topics(servers) as (source, target), tempfile.TemporaryDirectory() as storage:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
        for number in range(rows):
            producer.produce(source, b"%0100d" % number, partition=number % PARTITIONS)
            if number % 10_000 == 0:
                producer.flush()
        producer.flush()
        variant = "real-time", delivery, "10s"
        job = a_job(servers, (source, target), storage, variant, python=python)
        running = threading.Thread(target=job.run, kwargs={"execution": "real-time"})
        running.start()
        asked = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_uncommitted",
            }
        )
        begun: tuple[float, int] | None = None
        while running.is_alive():
            at, there = time.monotonic(), 0
            for partition in range(PARTITIONS):
                there += asked.get_watermark_offsets(TopicPartition(target, partition), 10)[1]
            if begun is None and there >= 0.1 * rows:
                begun = at, there
            if begun is not None and there >= 0.9 * rows:
                break
            time.sleep(0.01)
        asked.close()
        if begun is None or not running.is_alive():
            raise RuntimeError("the job has ended before its rows were there")
        job.stop()
        running.join()
        return (there - begun[1]) / (at - begun[0])


def measure(
    servers: str,
    variant: tuple[Literal["micro-batch", "real-time"], Any, str],
    arguments: argparse.Namespace,
) -> list[float]:
    """Run one job, and return the latencies of its counted rows, ascending, in milliseconds."""
    with topics(servers) as (source, target), tempfile.TemporaryDirectory() as storage:
        job = a_job(servers, (source, target), storage, variant)
        reader = Reader(servers, target)
        reader.start()
        running = threading.Thread(target=job.run, kwargs={"execution": variant[0]})
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
    parser.add_argument("--backlog", type=int, default=0, help="rows in the topic at the start")
    parser.add_argument("--python", action="store_true", help="a Python function, with --backlog")
    arguments = parser.parse_args()
    if arguments.backlog:
        with LocalKafka() as kafka:
            for delivery in ("at-least-once", "exactly-once"):
                rate = measure_backlog(
                    kafka.bootstrap_servers, delivery, arguments.backlog, python=arguments.python
                )
                print(f"{delivery}: {rate:,.0f} rows/s in {PARTITIONS} tasks", flush=True)
        return
    table = Table("execution", "guarantee", "interval", "rows", "p50 ms", "p99 ms", "max ms")
    with LocalKafka() as kafka:
        for variant in VARIANTS:
            ms = measure(kafka.bootstrap_servers, variant, arguments)
            figures = ms[len(ms) // 2], ms[len(ms) * 99 // 100], ms[-1]
            table.add_row(*variant, str(len(ms)), *(f"{figure:.0f}" for figure in figures))
    Console(width=100).print(table, f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

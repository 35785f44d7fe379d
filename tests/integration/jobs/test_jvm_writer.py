"""The Kafka sink's writers, in Python and in the JVM, write the same records and report the same.

How: odd rows go through a job in real time, whose rows stay in the JVM, and through one in
micro-batches, whose rows pass Python. Topics, ledgers and audits of both are compared.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

import seamark as sm
from seamark.dev.kafka import LocalKafka
from tests.chaos.driver import wait_until
from tests.integration.kafka import sink_kit as kit
from tests.threads import RunningJob

ROWS = 600
PARTITIONS = 2
HEADERS = "array<struct<key:string,value:binary>>"


def odd_rows() -> Iterator[tuple[bytes | None, bytes | None]]:
    """Nulls, empty values, all lengths around the hash's stripes, any bytes."""
    shuffle = random.Random(7)
    lengths = [0, 1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 100, 1000]
    for number in range(ROWS):
        key = None if number % 11 == 0 else shuffle.randbytes(shuffle.choice(lengths))
        value = None if number % 7 == 0 else shuffle.randbytes(shuffle.choice(lengths))
        yield key, value


def a_job(directory: Path, servers: str, topics: dict[str, str]) -> Any:
    """Return a job with a sink of records with headers and partitions, and one of JSON."""
    job = sm.Job("odd", sm.CheckpointConfig(storage=str(directory), interval="1s", timeout="2min"))
    rows = job.source(sm.KafkaSource(servers, topics["in"], starting_offsets="earliest"), uid="in")
    number = F.col("offset")
    headers = (
        F.when(number % 5 == 0, None)
        .when(number % 5 == 1, F.array().cast(HEADERS))
        .otherwise(
            F.array(
                F.struct(F.lit("žluť").alias("key"), F.col("value").alias("value")),
                F.struct(F.lit("").alias("key"), F.lit(b"").alias("value")),
            )
        )
    )
    odd = rows.select(
        "key",
        "value",
        F.when(number % 3 == 0, (number % PARTITIONS).cast("int")).alias("partition"),
        headers.alias("headers"),
    )
    text = rows.select(F.hex("key").alias("key"), F.hex("value").alias("text"), "offset")
    for uid, frame, more in (
        ("odd", odd, {}),
        ("json", text, {"key": "key", "value_format": "json"}),
    ):
        sink = sm.KafkaSink(
            servers, topics[uid], transactional_id_prefix=topics[uid], transaction_timeout="5min",
            **more,
        )  # fmt: skip
        job.sink(frame, sink, uid=uid)
    return job


def records(servers: str, topic: str) -> list[tuple[Any, ...]]:
    """Return what a read_committed reader finds, sorted; the partitions of rows with a key."""
    return sorted(
        (
            (m.key(), m.value(), tuple(m.headers() or ()), m.key() is not None and m.partition())
            for m in kit.records(servers, topic)
        ),
        key=repr,
    )


def ledger(storage: Path, uid: str) -> tuple[int, int, int]:
    """Return the rows, and both sums of their hashes, in all prepared records."""
    rows, sums = 0, [0, 0]
    for path in sorted(storage.glob("odd/epochs/*/prepared.*.json")):
        for task in json.loads(path.read_bytes())["body"]["sinks"].get(uid, {}).get("ledger", ()):
            for count, text in task["targets"].values():
                rows += count
                sums[0] += int(text[:16], 16)
                sums[1] += int(text[16:], 16)
    return rows, sums[0] % 2**64, sums[1] % 2**64


@pytest.mark.timeout(600)
def test_both_writers_write_the_same(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seamark")
    servers, source = kafka.bootstrap_servers, topic(1)
    producer = Producer({"bootstrap.servers": servers})
    for key, value in odd_rows():
        producer.produce(source, value, key, partition=0)
    producer.flush()
    found = {}
    for execution in ("real-time", "micro-batch"):
        topics = {"in": source, "odd": topic(PARTITIONS), "json": topic(PARTITIONS)}
        job = a_job(tmp_path / execution, servers, topics)
        running = RunningJob(job, execution=execution)
        try:
            wait_until(
                "all rows",
                lambda: all(len(records(servers, topics[uid])) == ROWS for uid in ("odd", "json")),  # noqa: B023
                120,
            )
        finally:
            running.end()
        found[execution] = {
            uid: (records(servers, topics[uid]), ledger(tmp_path / execution, uid))
            for uid in ("odd", "json")
        }
    assert "rows stay in the JVM" in caplog.text
    for uid in ("odd", "json"):
        in_jvm, in_python = found["real-time"][uid], found["micro-batch"][uid]
        assert in_jvm[0] == in_python[0]
        assert in_jvm[1] == in_python[1]
        assert in_jvm[1][0] == ROWS

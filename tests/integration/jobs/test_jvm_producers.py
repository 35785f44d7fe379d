"""The pool of Java's producers (`spark/java/KafkaProducers.java`), in the real session's JVM.

How: its methods are called by reflection, as a task in the JVM calls them.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
from kafka.admin import ConfigResource, KafkaAdminClient
from pyspark.sql import SparkSession

from seamark.dev.kafka import LocalKafka
from seamark.sinks.kafka import KafkaSink
from seamark.spark.java.compiled import class_loader, writers_jar
from seamark.spark.session import require_format, spark_session
from tests.chaos.driver import wait_until
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    session = spark_session("tests")
    require_format(session, "kafka")
    return session


class Java:
    """Calls methods and reads fields that are not public."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm
        self.gateway = spark.sparkContext._gateway
        self.classes = class_loader(self.jvm, writers_jar(spark))
        self.pools = self.classes.loadClass("seamark.KafkaProducers")
        self.leases = self.classes.loadClass("seamark.Lease")

    def call(self, kind: Any, of: Any, name: str, *arguments: Any) -> Any:
        (method,) = (m for m in kind.getDeclaredMethods() if m.getName() == name)
        method.setAccessible(True)
        given = self.gateway.new_array(self.jvm.java.lang.Object, len(arguments))
        for number, argument in enumerate(arguments):
            given[number] = argument
        return method.invoke(of, given)

    def read(self, kind: Any, of: Any, name: str) -> Any:
        field = kind.getDeclaredField(name)
        field.setAccessible(True)
        return field.get(of)

    def pool(self, sink: KafkaSink, job: str) -> Any:
        told = json.dumps(sink.jvm_writer(job, kit.UID, 1))
        mapper = self.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        described = mapper.readValue(told, self.jvm.java.lang.Class.forName("java.util.HashMap"))
        return self.call(self.pools, None, "of", described)

    def take(self, pool: Any, epoch: int = 0) -> Any:
        return self.call(self.pools, pool, "take", epoch, -1)

    def threads(self, lease: Any) -> int:
        """Return how many threads this lease's producer has."""
        name = f"seamark-{self.read(self.leases, lease, 'id')}"
        all_of = self.jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
        return sum(thread.getName().endswith(name) for thread in all_of)


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Java:
    return Java(spark)


def flushed(java: Java, sink: KafkaSink, pool: Any, lease: Any, rows: list[Any]) -> None:
    """Write rows in a transaction, and give the lease back; its transaction stays open."""
    producer = java.read(java.leases, lease, "producer")
    producer.beginTransaction()
    for row in rows:
        record = java.jvm.org.apache.kafka.clients.producer.ProducerRecord(sink.topic, row)
        producer.send(record).get()
    java.call(java.leases, lease, "identify")
    java.call(java.pools, pool, "flushed", lease, -1)


def test_a_producer_that_was_closed_takes_no_memory(
    java: Java, kafka: LocalKafka, topic: Topic
) -> None:
    sink, job = kit.sink_on(kafka.bootstrap_servers, topic()), kit.new_job()
    pool = java.pool(sink, job)
    lease = java.take(pool)
    producer = java.jvm.java.lang.ref.WeakReference(java.read(java.leases, lease, "producer"))
    flushed(java, sink, pool, lease, [b"one"])
    wait_until("its end", lambda: java.threads(lease) == 0, 60)

    def gone() -> bool:
        gc.collect()  # Python's own references
        java.jvm.java.lang.System.gc()
        return producer.get() is None

    wait_until("its memory", gone, 20, 0.5)
    kit.abort_all(sink, job)


def test_a_producer_is_closed_before_the_next_is_made(
    java: Java, kafka: LocalKafka, topic: Topic
) -> None:
    sink, job = kit.sink_on(kafka.bootstrap_servers, topic()), kit.new_job()
    pool = java.pool(sink, job)
    lease = java.take(pool)
    settings = java.read(java.pools, pool, "sink").get("settings")
    settings.put("bootstrap.servers", "127.0.0.1:1")  # the next one waits for its broker
    settings.put("max.block.ms", "20000")
    flushed(java, sink, pool, lease, [b"one"])
    wait_until("its end", lambda: java.threads(lease) == 0, 60)
    assert java.read(java.pools, pool, "warming") == 1
    java.call(java.pools, pool, "close")
    kit.abort_all(sink, job)


@pytest.mark.parametrize(
    ("option", "size"), [("message.max.bytes", 70_000_000), ("batch.size", 10)]
)
def test_the_largest_row_allowed_fits_into_the_memory(
    java: Java, kafka: LocalKafka, topic: Topic, option: str, size: int
) -> None:
    name, limit = topic(), 72_000_000
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.alter_configs([ConfigResource("TOPIC", name, {"max.message.bytes": limit})])
    sink = kit.sink_on(kafka.bootstrap_servers, name, producer_options={option: limit})
    job = kit.new_job()
    pool = java.pool(sink, job)
    row = java.gateway.new_array(java.jvm.byte, size)
    flushed(java, sink, pool, java.take(pool), [row])
    kit.abort_all(sink, job)

"""Which sinks Java's client can write for, and with which of its settings."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka.java_client import settings
from seamark.sinks.kafka.transactional_id import TransactionalId, owner, parse


def a_sink(kind: type[KafkaSink] = KafkaSink, **more: Any) -> KafkaSink:
    given = {"topic": "out", "transactional_id_prefix": "etl", **more}
    return kind("one:9092", **given)


def java(**options: object) -> dict[str, str] | None:
    return settings(a_sink(producer_options=options))


def test_settings_have_javas_names() -> None:
    found = java(**{
        "queue.buffering.max.ms": 0, "message.timeout.ms": 20_000, "compression.type": "zstd",
        "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "etl",
        "sasl.password": 'a"b', "ssl.ca.location": "/etc/ca.pem", "acks": "-1",
    })  # fmt: skip
    assert found is not None
    assert found["linger.ms"] == "0"
    assert (found["delivery.timeout.ms"], found["request.timeout.ms"]) == ("20000", "20000")
    assert found["transaction.timeout.ms"] == "900000"
    assert found["compression.type"] == "zstd"
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.jaas.config"].endswith('required username="etl" password="a\\"b";')
    assert found["ssl.truststore.type"] == "PEM"
    assert found["ssl.truststore.location"] == "/etc/ca.pem"
    assert found["acks"] == "all"


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        ({}, 67_108_864),
        ({"message.max.bytes": 33_554_433}, 67_108_866),
        ({"max.request.size": 100_000_000, "batch.size": 200_000_000}, 400_000_000),
    ],
)
def test_the_memory_holds_two_of_the_largest_row_or_batch(
    options: dict[str, object], memory: int
) -> None:
    found = java(**options)
    assert found is not None
    assert found["buffer.memory"] == str(memory)


@pytest.mark.parametrize(
    "option",
    [
        {"partitioner": "consistent"}, {"linger.ms": 0.5}, {"queue.buffering.max.messages": 10},
        {"message.timeout.ms": 5},
    ],
    ids=str,
)  # fmt: skip
def test_other_settings_are_pythons(option: dict[str, object]) -> None:
    assert java(**option) is None


class OtherSink(KafkaSink):
    pass


@pytest.mark.parametrize(
    "sink",
    [
        a_sink(topic=None),
        a_sink(spool=True),
        a_sink(value_format="avro", schema_registry={"url": "http://one:8081"}),
        a_sink(OtherSink),
    ],
    ids=["topics", "spool", "registry", "subclass"],
)
def test_other_sinks_are_pythons(sink: KafkaSink) -> None:
    assert sink.jvm_writer("job", "out", 3) is None


def test_a_transaction_has_the_names_and_the_committable_of_python() -> None:
    sink = a_sink()
    told = sink.jvm_writer("job", "out", 3)
    assert told is not None
    assert (told["transactional"], told["generation"]) == (True, 3)
    text = f"{told['ids']}-g3-0123456789ab-2"
    assert parse(text) == TransactionalId("etl", owner("job", "out"), 3, "0123456789ab", 2)
    sent = {"transactional_id": text, "producer_id": 7, "producer_epoch": 1,
            "rows": {"0": 3, "10": 1}}  # fmt: skip
    committable = sink.jvm_committable(sent)
    assert sink.load(sink.dump(committable)) == committable
    assert committable.rows == {"out": {0: 3, 10: 1}}

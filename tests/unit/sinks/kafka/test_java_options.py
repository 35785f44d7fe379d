"""Java's settings become librdkafka's; what librdkafka cannot do is refused by its name."""

from __future__ import annotations

import pytest

from seamark.model.errors import ConfigurationError
from seamark.model.kafka_options import from_java
from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka.options import admin_options

SCRAM = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
    '  username="etl" password="a\\"b;c = d";'
)


def test_credentials_are_written_once_for_source_and_sink() -> None:
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": SCRAM,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/kafka/ca.pem",
        "kafka.ssl.keystore.type": "pem",
        "kafka.ssl.keystore.location": "/etc/kafka/client.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    sink = KafkaSink("one:9093", topic="out", transactional_id_prefix="etl",
                     producer_options=options)  # fmt: skip
    assert sink.option_texts == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "etl",
        "sasl.password": 'a"b;c = d',
        "ssl.ca.location": "/etc/kafka/ca.pem",
        "ssl.certificate.location": "/etc/kafka/client.pem",
        "ssl.key.location": "/etc/kafka/client.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    admin = admin_options("one:9093", sink.option_texts)
    assert (admin["sasl_plain_username"], admin["ssl_cafile"]) == ("etl", "/etc/kafka/ca.pem")
    assert 'a"b' not in repr(sink)


@pytest.mark.parametrize(
    ("java", "found"),
    [
        ({"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"linger.ms": "5", "kafka.batch.size": "1"}, {"linger.ms": "5", "batch.size": "1"}),
        ({"kafka.batch.size": "0"}, {"batch.size": "1"}),
        ({"send.buffer.bytes": "-1"}, {"socket.send.buffer.bytes": "0"}),
        ({"receive.buffer.bytes": "-1"}, {"socket.receive.buffer.bytes": "0"}),
        ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
        ({"retry.backoff.ms": "0"}, {"retry.backoff.ms": "1"}),
        ({"max.block.ms": "100"}, {}),
        ({"metadata.max.idle.ms": "1", "metric.reporters": "a.B"}, {}),
        (
            {
                "compression.type": "zstd",
                "compression.zstd.level": "3",
                "compression.lz4.level": "9",
            },
            {"compression.type": "zstd", "compression.level": "3"},
        ),
        (
            {"sasl.jaas.config": "a.b.PlainLoginModule required username=u password='p w';"},
            {"sasl.username": "u", "sasl.password": "p w"},
        ),
    ],
)
def test_names_of_java(java: dict[str, str], found: dict[str, str]) -> None:
    assert from_java(java, "sink") == found


@pytest.mark.parametrize(
    ("java", "said"),
    [
        ({"ssl.truststore.location": "/a.jks"}, "of type JKS.*export its certificates as PEM"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/a"}, "of type PKCS12"),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "x"}, "into a file"),
        ({"sasl.jaas.config": "a.Krb5LoginModule required useKeyTab=true;"}, "Krb5LoginModule"),
        ({"sasl.jaas.config": "hunter2"}, "another form"),
        ({"sasl.jaas.config": 'a.PlainLoginModule required username="u";'}, "no password"),
        ({"partitioner.class": "a.B"}, "column `partition`"),
        ({"partitioner.ignore.keys": "true"}, "column `key`"),
        ({"buffer.memory": "much"}, "number of bytes"),
    ],
)
def test_what_librdkafka_cannot_do(java: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as error:
        from_java(java, "sink")
    assert "hunter2" not in str(error.value)

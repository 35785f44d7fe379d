"""What a source says of settings with which Kafka's client cannot even be made.

How: Kafka's own client in a JVM without Spark; neither a broker nor a name server is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from seamark.model.findings import FindingCode
from seamark.sources.kafka import KafkaSource
from seamark.spark.jars import find_java, kafka_broker_jars
from tests.servers.needed import needed


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with needed("Kafka"):
        java, jars = find_java(), kafka_broker_jars()
    class_path = ":".join(map(str, jars))
    port = launch_gateway(classpath=class_path, java_path=str(java), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


UNKNOWN_HOST = KafkaSource("no-such-host.invalid:9092", "clicks", group_id="g")
NO_TRUSTSTORE = KafkaSource(
    "127.0.0.1:1",
    "clicks",
    group_id="g",
    options={
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/no/such/file",
        "kafka.ssl.truststore.password": "s3cr3t",
    },
)


@pytest.mark.parametrize(
    ("source", "said"),
    [(UNKNOWN_HOST, "No resolvable bootstrap urls"), (NO_TRUSTSTORE, "/no/such/file")],
    ids=["host", "truststore"],
)
def test_a_client_that_cannot_be_made_is_a_finding(
    jvm: Any, source: KafkaSource, said: str
) -> None:
    """And no traceback; a committer of offsets says the same as OSError."""
    (finding,) = source.inspect_source("in", jvm, 60.0)
    assert finding.code is FindingCode.SV001
    assert said in finding.found
    assert "s3cr3t" not in finding.found
    committer = source.create_offset_committer(jvm)
    assert committer is not None
    with pytest.raises(OSError, match=said):
        committer.commit({"clicks": {"0": 5}})
    committer.close()

"""OAUTHBEARER's settings: Java's and librdkafka's names, both ways, and what is refused."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

import seamark as sm
from seamark.model.errors import ConfigurationError
from seamark.model.kafka_options import OAUTH, from_java, to_java
from seamark.sinks.kafka.oauth import token_provider

RDKAFKA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "etl",
    "sasl.oauthbearer.client.secret": 's3"cr\\et',
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=p-2",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    "https.ca.location": "/etc/idp.pem",
}


def sink(options: dict[str, Any]) -> sm.KafkaSink:
    return sm.KafkaSink("h:1", topic="t", transactional_id_prefix="p", producer_options=options)


def source(options: dict[str, str]) -> dict[str, str]:
    given = {f"kafka.{name}": value for name, value in options.items()}
    read = sm.KafkaSource("h:1", topics="t", options=given).reader().options
    return {n.removeprefix("kafka."): v for n, v in read.items() if "ssl" in n or "sasl" in n}


def test_there_and_back() -> None:
    java = source(RDKAFKA)
    assert java["sasl.jaas.config"].startswith(
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="
    )
    assert not [name for name in java if "client" in name and "handler" not in name]
    with_protocol = {"security.protocol": "SASL_SSL", **java}
    assert from_java(with_protocol, "sink") == RDKAFKA
    assert dict(sink(with_protocol).producer_options) == RDKAFKA
    prefixed = {f"kafka.{name}": value for name, value in java.items()}
    found = from_java(prefixed, "sink")
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://idp/token"


def test_passwords_and_certificates_for_java() -> None:
    given = {
        "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanisms": "scram-sha-512",
        "kafka.sasl.username": "u", "kafka.sasl.password": 'p"\\w', "kafka.ssl.ca.location": "/ca",
        "kafka.ssl.certificate.location": "/own", "kafka.ssl.key.location": "/own",
        "maxOffsetsPerTrigger": "7",
    }  # fmt: skip
    assert to_java(given, "source") == {
        "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        'required username="u" password="p\\"\\\\w";',
        "kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca",
        "kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": "/own",
        "maxOffsetsPerTrigger": "7",
    }  # fmt: skip


def test_javas_own_stay() -> None:
    given = {"kafka.sasl.mechanism": "GSSAPI", "kafka.ssl.truststore.location": "/jks", "x": "y"}
    assert to_java(given, "source") == given


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"sasl.oauthbearer.method": None}, "method is not 'oidc'; give"),
        ({"sasl.oauthbearer.client.id": None}, "sasl.oauthbearer.client.id is not given"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism is 'PLAIN'"),
        ({"sasl.oauthbearer.grant.type": "jwt"}, "grant.type' is not supported"),
    ],
)
def test_a_login_that_is_not_whole(change: dict[str, Any], match: str) -> None:
    options = {name: value for name, value in (RDKAFKA | change).items() if value is not None}
    with pytest.raises(ConfigurationError, match=match) as caught:
        sink(options)
    assert RDKAFKA["sasl.oauthbearer.client.secret"] not in str(caught.value)


def test_another_java_class() -> None:
    java = source(RDKAFKA) | {"sasl.login.callback.handler.class": "com.example.Handler"}
    with pytest.raises(ConfigurationError, match=r"com\.example\.Handler, a Java class"):
        sink(java)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sasl.username": "u", "sasl.mechanism": "GSSAPI"}, "mechanism is 'GSSAPI'; give one of"),
        ({"sasl.username": "u", "sasl.mechanism": "PLAIN"}, r"kafka\.sasl\.password is not given"),
        (
            {"sasl.username": "u", "sasl.mechanism": "OAUTHBEARER"},
            r"kafka\.sasl\.oauthbearer\.client\.id is not given, and a login by OAUTHBEARER",
        ),
        ({"ssl.certificate.location": "/a", "ssl.key.location": "/b"}, "two files"),
    ],
)
def test_what_java_cannot_take(options: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        source(options)


def test_an_endpoint_that_does_not_speak_http() -> None:
    """Its address is named, as at any other failure."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 mail\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        settings = {name: text for name, text in RDKAFKA.items() if name != "https.ca.location"}
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(OSError, match=f"authentication: no token from {url}"):
            token_provider(settings | {f"{OAUTH}token.endpoint.url": url}).token()
        thread.join(60)

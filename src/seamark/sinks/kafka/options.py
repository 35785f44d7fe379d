"""`producer_options`: librdkafka's settings, or Java's (`model/kafka_options.py`). Some belong to
Seamark, some are secret.

The driver speaks to the broker through kafka-python, so `admin_options` translates the settings of
the connection for it too.
"""

import re
from collections.abc import Mapping
from typing import Any

from seamark.api import checks
from seamark.model.errors import ConfigurationError
from seamark.model.kafka_options import PREFIX, from_java
from seamark.sinks.kafka import msk_iam, oauth

_OWNED = {
    "bootstrap.servers": "give bootstrap_servers= instead",
    "metadata.broker.list": "give bootstrap_servers= instead",
    "transactional.id": "give transactional_id_prefix= instead; ids are made from it",
    "transaction.timeout.ms": "give transaction_timeout= instead",
    "delivery.report.only.error": "every delivery report is needed to prove that no row was lost",
    "statistics.interval.ms": "it is used to learn the producer id; leave it out",
    "enable.gapless.guarantee": "it would hide a lost row behind a fatal error; leave it out",
}
_FIXED = {
    "enable.idempotence": ({"true"}, "a retry could write a row twice"),
    "acks": ({"all", "-1"}, "an acknowledged row could vanish with its broker"),
    "request.required.acks": ({"all", "-1"}, "an acknowledged row could vanish with its broker"),
}
_SECRET = re.compile(
    r"password|secret|\.pem$|\.jaas\.|token(?!\.endpoint)|credential|oauthbearer\.config"
)

# Throughput over latency: a flush does not wait for linger.ms. The queue is small on purpose: it
# takes memory of each Python worker, and a larger one was no faster.
DEFAULTS: Mapping[str, str] = {
    "linger.ms": "5",
    "batch.size": "500000",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "65536",
    # As in Java: a row that Spark's own sink writes is not too large here.
    "message.max.bytes": "1048576",
    # As in Java: a key's rows land in the same partition as with Spark's own sink.
    "partitioner": "murmur2_random",
    "message.timeout.ms": "120000",
    "allow.auto.create.topics": "false",
    # A client waits half of this before it connects to a broker it has just learned of.
    "reconnect.backoff.ms": "22",
    # Without this, closing a producer waits for a last push of client metrics.
    "enable.metrics.push": "false",
    # Errors reach the caller as exceptions; a retried connection is not worth a log line.
    "log_level": "2",
}
_QUEUE, _LARGEST = "queue.buffering.max.kbytes", "message.max.bytes"
_ALIASES = {
    "message.timeout.ms": "delivery.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
}

_ADMIN_NAMES = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
KNOWN = (*DEFAULTS, *_ALIASES.values(), *_FIXED, *_ADMIN_NAMES, "compression.type", "retries")
"""Names and aliases of librdkafka's settings, of which it lists no alias by itself."""
_NOT_FOR_ADMIN = re.compile(
    r"ssl\.(ca|certificate|key)\.pem|ssl\.keystore\.|ssl\.engine\."
    r"|enable\.ssl\.certificate\.verification"
)


def checked(options: Mapping[str, object], sink: str) -> dict[str, str]:
    """Return the options as text; raises ConfigurationError for an option owned by the sink, or a
    value other than text, number or bool. `sink` names the sink in the error."""
    named = checks.texts(options, f"{sink}: producer_options")
    given = {name.removeprefix(PREFIX): text for name, text in named.items()}
    texts: dict[str, str] = {}
    for name, text in from_java(msk_iam.from_java(given, sink), sink).items():
        if name in _OWNED:
            raise ConfigurationError(
                f"{sink}: producer option {name!r} is set by Seamark: {_OWNED[name]}"
            )
        if name in _FIXED and text.lower() not in _FIXED[name][0]:
            raise ConfigurationError(
                f"{sink}: producer option {name!r} is {shown(name, text)!r}, with which "
                f"{_FIXED[name][1]}; leave it out, or give {sorted(_FIXED[name][0])[-1]!r}"
            )
        if _NOT_FOR_ADMIN.match(name):
            raise ConfigurationError(
                f"{sink}: producer option {name!r} is not supported, because the driver must "
                "connect with the same credentials; give certificates as files "
                "(ssl.ca.location, ssl.certificate.location, ssl.key.location) and use "
                "sasl.mechanism PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI"
            )
        texts[name] = text
    oauth.check(texts, sink)
    queue, largest = texts.get(_QUEUE, ""), texts.get(_LARGEST, DEFAULTS[_LARGEST])
    if queue.isdecimal() and largest.isdecimal() and 1024 * int(queue) < int(largest):
        raise ConfigurationError(
            f"{sink}: producer option {_QUEUE} is {queue}: a row as large as {_LARGEST}, {largest} "
            f"bytes, would wait for room for ever; give at least {-(-int(largest) // 1024)} "
            f"(buffer.memory: {largest} bytes), or a smaller {_LARGEST}"
        )
    return texts


def shown(name: str, value: str) -> str:
    """Return the value as shown to people: stars for a secret."""
    return "***" if _SECRET.search(name) else value


def redacted(text: str, options: Mapping[str, str]) -> str:
    """Return `text`, a library's error, with the options' secrets removed."""
    for name, value in options.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return text


def producer_settings(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for an idempotent producer, without those of the transaction."""
    settings = dict(DEFAULTS)
    for name, alias in _ALIASES.items():
        if alias in options:
            del settings[name]
    if (largest := options.get(_LARGEST, "")).isdecimal():
        # A row above it would wait for room for ever.
        kbytes = max(int(settings[_QUEUE]), 2 * int(largest) // 1024)
        settings[_QUEUE] = str(kbytes)
    settings.update(options)
    settings["bootstrap.servers"] = servers
    settings["enable.idempotence"] = "true"
    return settings


def admin_options(servers: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return kafka-python's settings for the same servers and credentials."""
    settings: dict[str, Any] = {"bootstrap_servers": [s.strip() for s in servers.split(",")]}
    for name, value in options.items():
        if name in _ADMIN_NAMES:
            settings[_ADMIN_NAMES[name]] = value
    settings["security_protocol"] = settings.get("security_protocol", "PLAINTEXT").upper()
    if "sasl_mechanism" in settings:
        settings["sasl_mechanism"] = settings["sasl_mechanism"].upper()
        if settings["sasl_mechanism"] == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = oauth.token_provider(
                {**options, "bootstrap.servers": servers}
            )
    if options.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        settings["ssl_check_hostname"] = False
    return settings

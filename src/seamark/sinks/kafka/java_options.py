"""Java's names and values of Kafka settings, as librdkafka takes them.

So one dict of settings serves Spark's source, which runs Java's client, and the sink, which runs
librdkafka. Names may begin with ``kafka.``, as in Spark's options. What librdkafka cannot do is
refused, with what both understand instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from seamark.model.errors import ConfigurationError
from seamark.sinks.kafka import oauth
from seamark.sinks.kafka.oauth import jaas_values

JAAS = "sasl.jaas.config"
_PREFIX = "kafka."
_LOGIN = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\s+(.*?);?\s*", re.DOTALL
)
_PASSWORD_LOGINS = ("PlainLoginModule", "ScramLoginModule")
_PEM = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_ONE_FILE = "write chain and key into a file; give ssl.keystore.type PEM, and ssl.keystore.location"
_CANNOT = {
    "partitioner.class": "select a column `partition`, or give librdkafka's `partitioner`",
    "interceptor.classes": "librdkafka runs no Java class; leave it out",
    "key.serializer": "columns are written as they are; leave it out",
    "value.serializer": "columns are written as they are; leave it out",
    "sasl.login.callback.handler.class": "use PLAIN or SCRAM, with sasl.jaas.config",
    "sasl.client.callback.handler.class": "use PLAIN or SCRAM, with sasl.jaas.config",
    "ssl.truststore.certificates": "write them into a file; give ssl.truststore.type PEM and "
    "ssl.truststore.location",
    "ssl.keystore.certificate.chain": _ONE_FILE,
    "ssl.keystore.key": _ONE_FILE,
}
_WITHOUT_EFFECT = (
    "max.block.ms",
    "ssl.truststore.password",
    "ssl.keystore.password",
    "ssl.protocol",
    "ssl.enabled.protocols",
)
"""Of Java's client alone; the passwords are of JKS files."""


def from_java(options: Mapping[str, str], sink: str) -> dict[str, str]:
    """Return librdkafka's options for `options`, whose names may be Java's; the others stay.
    Raises ConfigurationError for what librdkafka cannot do; it names `sink` and shows no secret."""
    given = oauth.from_java({n.removeprefix(_PREFIX): v for n, v in options.items()}, sink)
    for name in [name for name in given if name in _CANNOT]:
        raise ConfigurationError(
            f"{sink}: {name} cannot be had with librdkafka, which writes here: {_CANNOT[name]}"
        )
    found: dict[str, str] = {}
    for name, value in given.items():
        if name == JAAS:
            found.update(_login(value, sink))
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value.strip() or "none"
        elif name == "buffer.memory":
            found["queue.buffering.max.kbytes"] = _kilobytes(value, sink)
        elif store := next((s for s in _PEM if name in (f"{s}.location", f"{s}.type")), None):
            found.update(_store(store, given, sink))
        elif name not in _WITHOUT_EFFECT:
            found[_RENAMED.get(name, name)] = value
    return found


def _kilobytes(value: str, sink: str) -> str:
    if not value.isdecimal():
        raise ConfigurationError(f"{sink}: buffer.memory is {value!r}; give a number of bytes")
    return str(max(1, int(value) // 1024))


def _login(text: str, sink: str) -> dict[str, str]:
    """Return user and password of a JAAS entry."""
    entry = _LOGIN.fullmatch(text)
    module = entry[1].rpartition(".")[2] if entry else ""
    if entry is None or module not in _PASSWORD_LOGINS:
        raise ConfigurationError(
            f"{sink}: {JAAS} has {module or 'another form'}; give one for PLAIN or SCRAM, e.g. "
            "org.apache.kafka.common.security.scram.ScramLoginModule "
            'required username="…" password="…";'
        )
    values = jaas_values(entry[2])
    if not {"username", "password"} <= values.keys():
        raise ConfigurationError(f"{sink}: {JAAS} names no username or no password; give both")
    return {"sasl.username": values["username"], "sasl.password": values["password"]}


def _store(store: str, given: Mapping[str, str], sink: str) -> dict[str, str]:
    """Return librdkafka's files for a trust or key store of type PEM."""
    kind, location = given.get(f"{store}.type", "JKS").upper(), given.get(f"{store}.location")
    if kind != "PEM" or not location:
        holds = "certificates" if store == "ssl.truststore" else "certificate chain and key"
        raise ConfigurationError(
            f"{sink}: {store} is of type {kind}, which librdkafka does not read; export its "
            f"{holds} as PEM, and give {store}.type PEM and the file in {store}.location: "
            "Spark's source takes them as well"
        )
    return dict.fromkeys(_PEM[store], location)

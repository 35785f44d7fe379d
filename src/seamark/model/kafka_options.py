"""Java's and librdkafka's names and values of Kafka settings, each as the other takes them.

A Kafka source runs Java's client, a Kafka sink librdkafka; so one dict of settings serves both.
Java's names may begin with ``kafka.``, as in Spark's options. What the other client cannot do is
refused, with what both understand instead. No error shows a secret.
"""

import re
from collections.abc import Mapping

from seamark.model.errors import ConfigurationError

PREFIX = "kafka."
JAAS, HANDLER = "sasl.jaas.config", "sasl.login.callback.handler.class"
OAUTH = "sasl.oauthbearer."
OIDC_REMEDY = (
    'give {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", '
    '"sasl.oauthbearer.client.id": …, "sasl.oauthbearer.client.secret": …, '
    '"sasl.oauthbearer.token.endpoint.url": …}'
)
_SECURITY = "org.apache.kafka.common.security."
_OIDC_HANDLER = f"{_SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler"
_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
_PASSWORD = {"username": "sasl.username", "password": "sasl.password"}
_OIDC = {
    "clientId": f"{OAUTH}client.id",
    "clientSecret": f"{OAUTH}client.secret",
    "scope": f"{OAUTH}scope",
    "ssl.truststore.location": "https.ca.location",
}
"""The fields of a JAAS entry, and librdkafka's names of them; the first two are needed."""
_EXTENSION = "extension_"
_STORES = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}
"""Java's stores of type PEM, and librdkafka's files."""
_NOT_JAVAS = {
    *_PASSWORD.values(), *_OIDC.values(), f"{OAUTH}method", f"{OAUTH}extensions",
    *(file for files in _STORES.values() for file in files),
}  # fmt: skip
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_WITH_ANOTHER_VALUE = {
    ("batch.size", "0"): "1",
    ("retry.backoff.ms", "0"): "1",
    ("send.buffer.bytes", "-1"): "0",
    ("receive.buffer.bytes", "-1"): "0",
    ("connections.max.idle.ms", "-1"): "0",
}
"""Java's values for "none" and "the system's own", which librdkafka writes otherwise or lacks."""
_ONE_FILE = "write chain and key into a file; give ssl.keystore.type PEM, and ssl.keystore.location"
_CODECS = ("gzip", "lz4", "zstd")
_CANNOT = {
    "partitioner.class": "select a column `partition`, or give librdkafka's `partitioner`",
    "partitioner.ignore.keys": "leave out the column `key`, or give librdkafka's `partitioner`",
    "interceptor.classes": "librdkafka runs no Java class; leave it out",
    "key.serializer": "columns are written as they are; leave it out",
    "value.serializer": "columns are written as they are; leave it out",
    HANDLER: "use PLAIN or SCRAM, with sasl.jaas.config",
    "sasl.client.callback.handler.class": "use PLAIN or SCRAM, with sasl.jaas.config",
    "ssl.truststore.certificates": "write them into a file; give ssl.truststore.type PEM and "
    "ssl.truststore.location",
    "ssl.keystore.certificate.chain": _ONE_FILE,
    "ssl.keystore.key": _ONE_FILE,
}
_WITHOUT_EFFECT = (
    "auto.include.jmx.reporter",
    "max.block.ms",
    "metadata.max.idle.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    *(f"compression.{codec}.level" for codec in _CODECS),
    "ssl.truststore.password",
    "ssl.keystore.password",
    "ssl.protocol",
    "ssl.enabled.protocols",
)
"""Of Java's client alone: no row is another one without them. The passwords are of JKS files."""
_ENTRY = re.compile(
    r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b\s*(.*?);?\s*", re.DOTALL
)
_FIELD = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
TOPIC_NAMES = "letters, digits, '.', '_' and '-', at most 249 of them"


def is_topic(name: object) -> bool:
    """Whether Kafka would take a topic's name: one of `TOPIC_NAMES`."""
    return isinstance(name, str) and bool(_TOPIC.fullmatch(name)) and name not in (".", "..")


def to_java(options: Mapping[str, str], source: str) -> dict[str, str]:
    """Return a source's options with librdkafka's names of logins and certificates as Java's. The
    given names of Java's own win. Raises ConfigurationError."""
    given = {n.removeprefix(PREFIX): v for n, v in options.items() if n.startswith(PREFIX)}
    kept = {name: value for name, value in given.items() if name not in _NOT_JAVAS}
    java: dict[str, str] = {}
    if mechanism := kept.pop("sasl.mechanism", kept.pop("sasl.mechanisms", "")).upper():
        kept["sasl.mechanism"] = mechanism
    if JAAS not in kept and ("sasl.username" in given or f"{OAUTH}client.id" in given):
        java.update(_jaas_login(mechanism, given, source))
    for store, files in _STORES.items():
        if location := given.get(files[0]):
            if given.get(files[-1]) != location:
                raise ConfigurationError(
                    f"{source}: options kafka.ssl.certificate.location and kafka.ssl.key.location "
                    "are two files; Java's client takes one PEM file with the key (PKCS#8) and the "
                    "certificate chain: give it in both"
                )
            java |= {f"{store}.type": "PEM", f"{store}.location": location}
    if kept.get("ssl.endpoint.identification.algorithm") == "none":
        kept["ssl.endpoint.identification.algorithm"] = ""
    others = {n: v for n, v in options.items() if not n.startswith(PREFIX)}
    return {**others, **{PREFIX + name: value for name, value in {**java, **kept}.items()}}


def _jaas_login(mechanism: str, given: Mapping[str, str], source: str) -> dict[str, str]:
    """Return Java's entry for a login by librdkafka's names."""
    if mechanism not in _MODULES:
        raise ConfigurationError(
            f"{source}: option kafka.sasl.mechanism is {mechanism!r}; give one of "
            f"{', '.join(_MODULES)}, or Java's kafka.{JAAS}"
        )
    fields = _OIDC if mechanism == "OAUTHBEARER" else _PASSWORD
    values = {field: given[name] for field, name in fields.items() if given.get(name)}
    if missing := [fields[field] for field in [*fields][:2] if field not in values]:
        raise ConfigurationError(
            f"{source}: option kafka.{missing[0]} is not given, and a login by {mechanism} needs "
            "it; give it"
        )
    handler = {}
    if fields is _OIDC:
        for pair in filter(None, given.get(f"{OAUTH}extensions", "").split(",")):
            name, _, value = pair.partition("=")
            values[_EXTENSION + name] = value
        if "ssl.truststore.location" in values:
            values["ssl.truststore.type"] = "PEM"
        handler[HANDLER] = _OIDC_HANDLER
    escaped = ((n, v.replace("\\", "\\\\").replace('"', '\\"')) for n, v in values.items())
    listed = " ".join(f'{name}="{value}"' for name, value in escaped)
    return {**handler, JAAS: f"{_SECURITY}{_MODULES[mechanism]} required {listed};"}


def from_java(options: Mapping[str, str], sink: str) -> dict[str, str]:
    """Return librdkafka's options for `options`, whose names may be Java's; the others stay.
    Raises ConfigurationError for what librdkafka cannot do."""
    given = {name.removeprefix(PREFIX): value for name, value in options.items()}
    if JAAS in given:
        given.update(_login_of_jaas(given, sink))
    for name in given.keys() & _CANNOT.keys():
        raise ConfigurationError(
            f"{sink}: {name} cannot be had with librdkafka, which writes here: {_CANNOT[name]}"
        )
    taken: dict[str, str] = {}
    # librdkafka has one level, of the codec that it uses.
    if level := given.get(f"compression.{given.get('compression.type')}.level"):
        taken["compression.level"] = level
    for name, value in given.items():
        if name == "ssl.endpoint.identification.algorithm":
            taken[name] = value.strip() or "none"
        elif name == "buffer.memory":
            if not value.isdecimal():
                raise ConfigurationError(f"{sink}: {name} is {value!r}; give a number of bytes")
            taken["queue.buffering.max.kbytes"] = str(max(1, int(value) // 1024))
        elif store := next((s for s in _STORES if name in (f"{s}.location", f"{s}.type")), None):
            taken.update(dict.fromkeys(_STORES[store], _pem_file(store, given, sink)))
        elif name not in _WITHOUT_EFFECT:
            taken[_RENAMED.get(name, name)] = _WITH_ANOTHER_VALUE.get((name, value), value)
    return taken


def _login_of_jaas(given: dict[str, str], sink: str) -> dict[str, str]:
    """Take Java's entry out of `given`, and return librdkafka's options for it."""
    entry = _ENTRY.fullmatch(given.pop(JAAS))
    module = entry[1].rpartition(".")[2] if entry else ""
    values = jaas_values(entry[2]) if entry else {}
    if module == "OAuthBearerLoginModule":
        handler = given.pop(HANDLER, _OIDC_HANDLER)
        if handler.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
            raise ConfigurationError(
                f"{sink}: {HANDLER} is {handler}, a Java class, which librdkafka cannot run; "
                f"{OIDC_REMEDY}"
            )
        login = {f"{OAUTH}method": "oidc"}
        extensions = [
            f"{name.removeprefix(_EXTENSION)}={value}"
            for name, value in values.items()
            if name.startswith(_EXTENSION)
        ]
        if extensions:
            login[f"{OAUTH}extensions"] = ",".join(extensions)
        return login | {_OIDC[name]: value for name, value in values.items() if name in _OIDC}
    if module not in ("PlainLoginModule", "ScramLoginModule"):
        raise ConfigurationError(
            f"{sink}: {JAAS} has {module or 'another form'}; give one for PLAIN or SCRAM, e.g. "
            f'{_SECURITY}{_MODULES["SCRAM-SHA-512"]} required username="…" password="…";'
        )
    if not _PASSWORD.keys() <= values.keys():
        raise ConfigurationError(f"{sink}: {JAAS} names no username or no password; give both")
    return {option: values[name] for name, option in _PASSWORD.items()}


def jaas_values(text: str) -> dict[str, str]:
    """Return the values of a JAAS entry by name."""
    return {
        name: bare or re.sub(r"\\(.)", r"\1", double or single)
        for name, double, single, bare in _FIELD.findall(text)
    }


def _pem_file(store: str, given: Mapping[str, str], sink: str) -> str:
    kind, location = given.get(f"{store}.type", "JKS").upper(), given.get(f"{store}.location")
    if kind != "PEM" or not location:
        holds = "certificates" if store == "ssl.truststore" else "certificate chain and key"
        raise ConfigurationError(
            f"{sink}: {store} is of type {kind}, which librdkafka does not read; export its "
            f"{holds} as PEM, and give {store}.type PEM and the file in {store}.location: "
            "Spark's source takes them as well"
        )
    return location

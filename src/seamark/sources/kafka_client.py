"""librdkafka's names of a login and of certificates, as Java's client takes them.

So one dict of settings, each behind ``kafka.``, serves a Kafka source, which runs Java's client,
and a Kafka sink, which runs librdkafka. Java's own names stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from seamark.model.errors import ConfigurationError

_PREFIX = "kafka."
_OAUTH = "sasl.oauthbearer."
_JAAS = "sasl.jaas.config"
_LOGINS = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
_SECURITY = "org.apache.kafka.common.security."
_TAKEN = {"sasl.username", "sasl.password", "ssl.ca.location", "https.ca.location"}
_TAKEN |= {"ssl.certificate.location", "ssl.key.location"}
_TAKEN |= {f"{_OAUTH}{name}" for name in ("method", "client.id", "client.secret", "scope")}
_TAKEN |= {f"{_OAUTH}extensions"}


def to_java(options: Mapping[str, str], source: str) -> dict[str, str]:
    """Return a source's options with librdkafka's names of logins and certificates as Java's. The
    given names of Java's own win. Raises ConfigurationError; shows no secret."""
    given = {n.removeprefix(_PREFIX): v for n, v in options.items() if n.startswith(_PREFIX)}
    kept = {name: value for name, value in given.items() if name not in _TAKEN}
    found: dict[str, str] = {}
    if mechanism := kept.pop("sasl.mechanism", kept.pop("sasl.mechanisms", "")).upper():
        kept["sasl.mechanism"] = mechanism
    if "sasl.username" in given or f"{_OAUTH}client.id" in given:
        found.update(_login(mechanism, given, source))
    if ca := given.get("ssl.ca.location"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    if certificate := given.get("ssl.certificate.location"):
        if given.get("ssl.key.location") != certificate:
            raise ConfigurationError(
                f"{source}: options kafka.ssl.certificate.location and kafka.ssl.key.location are "
                "two files; Java's client takes one PEM file with the key (PKCS#8) and the "
                "certificate chain: give it in both"
            )
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    if kept.get("ssl.endpoint.identification.algorithm") == "none":
        kept["ssl.endpoint.identification.algorithm"] = ""
    others = {n: v for n, v in options.items() if not n.startswith(_PREFIX)}
    return {**others, **{_PREFIX + name: value for name, value in {**found, **kept}.items()}}


def _login(mechanism: str, given: Mapping[str, str], source: str) -> dict[str, str]:
    if mechanism not in _LOGINS:
        raise ConfigurationError(
            f"{source}: option kafka.sasl.mechanism is {mechanism!r}; give one of "
            f"{', '.join(_LOGINS)}, or Java's kafka.{_JAAS}"
        )
    if mechanism != "OAUTHBEARER":
        values = {"username": given["sasl.username"], "password": given.get("sasl.password", "")}
        return {_JAAS: _entry(mechanism, values)}
    values = {"clientId": given[f"{_OAUTH}client.id"]}
    values["clientSecret"] = given.get(f"{_OAUTH}client.secret", "")
    if scope := given.get(f"{_OAUTH}scope"):
        values["scope"] = scope
    for pair in filter(None, given.get(f"{_OAUTH}extensions", "").split(",")):
        name, _, value = pair.partition("=")
        values[f"extension_{name}"] = value
    if ca := given.get("https.ca.location"):
        values |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    return {
        _JAAS: _entry(mechanism, values),
        "sasl.login.callback.handler.class": f"{_SECURITY}oauthbearer."
        "OAuthBearerLoginCallbackHandler",
    }


def _entry(mechanism: str, values: Mapping[str, str]) -> str:
    """Return an entry of Java's login configuration."""
    quoted = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"')) for name, value in values.items()
    )
    listed = " ".join(f'{name}="{value}"' for name, value in quoted)
    return f"{_SECURITY}{_LOGINS[mechanism]} required {listed};"

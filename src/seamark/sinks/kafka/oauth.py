"""OAUTHBEARER by OIDC client credentials: the same settings for all three clients.

librdkafka, which writes, gets its tokens itself. kafka-python, which the driver uses, gets them
from `token_provider`. Java's settings, as a Kafka source takes them, become librdkafka's here.
`msk_iam.py` has the tokens of Amazon's MSK.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.sinks.kafka import msk_iam

_NAME = "sasl.oauthbearer."
_JAAS, _HANDLER = "sasl.jaas.config", "sasl.login.callback.handler.class"
_MODULE = "OAuthBearerLoginModule"
_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
_OF_JAAS = {
    "clientId": f"{_NAME}client.id",
    "clientSecret": f"{_NAME}client.secret",
    "scope": f"{_NAME}scope",
    "ssl.truststore.location": "https.ca.location",
}
_KNOWN = {
    f"{_NAME}{name}"
    for name in (
        "method",
        "client.id",
        "client.secret",
        "scope",
        "extensions",
        "token.endpoint.url",
    )
}
_TIMEOUT_S = 10.0
_REMEDY = (
    'give {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", '
    '"sasl.oauthbearer.client.id": …, "sasl.oauthbearer.client.secret": …, '
    '"sasl.oauthbearer.token.endpoint.url": …}'
)


def from_java(options: Mapping[str, Any], sink: str) -> dict[str, Any]:
    """Return the options with Java's names of an OIDC login as librdkafka's; others stay as they
    are. Raises ConfigurationError for a login that is not OIDC's; it shows no secret."""
    given = dict(options)
    prefix = "kafka." if f"kafka.{_JAAS}" in given else ""
    text = given.get(prefix + _JAAS)
    if isinstance(text, str) and msk_iam.MODULE in text:
        for name in (_JAAS, _HANDLER, "sasl.client.callback.handler.class"):
            given.pop(prefix + name, None)
        return msk_iam.from_java(given, jaas_values(text), sink)
    if isinstance(text, str) and _MODULE in text:
        del given[prefix + _JAAS]
        handler = str(given.pop(prefix + _HANDLER, "OAuthBearerLoginCallbackHandler"))
        if handler.rpartition(".")[2] != "OAuthBearerLoginCallbackHandler":
            raise ConfigurationError(
                f"{sink}: {_HANDLER} is {handler}, a Java class, which librdkafka cannot run; "
                f"{_REMEDY}"
            )
        given[f"{_NAME}method"] = "oidc"
        extensions = []
        for name, value in jaas_values(text).items():
            if name in _OF_JAAS:
                given[_OF_JAAS[name]] = value
            elif name.startswith("extension_"):
                extensions.append(f"{name.removeprefix('extension_')}={value}")
        if extensions:
            given[f"{_NAME}extensions"] = ",".join(extensions)
        for name in [name for name in given if name.startswith(prefix + _NAME)]:
            given[name.removeprefix("kafka.")] = given.pop(name)
    return given


def jaas_values(text: str) -> dict[str, str]:
    """Return the values of a JAAS entry by name."""
    return {
        name: bare or re.sub(r"\\(.)", r"\1", double or single)
        for name, double, single, bare in _OPTION.findall(text)
    }


def check(options: Mapping[str, str], sink: str) -> None:
    """Raise ConfigurationError for a login by OAUTHBEARER that is not whole, or of another kind."""
    if msk_iam.OPTION in options:
        return
    mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms", ""))
    given = {name for name in options if name.startswith(_NAME)}
    if mechanism.upper() != "OAUTHBEARER":
        if given:
            raise ConfigurationError(
                f"{sink}: producer option {min(given)!r} is given, and sasl.mechanism is "
                f"{mechanism!r}; {_REMEDY}, or leave it out"
            )
        return
    if other := sorted(given - _KNOWN):
        raise ConfigurationError(
            f"{sink}: producer option {other[0]!r} is not supported, because the driver must "
            f"log in too; {_REMEDY}"
        )
    needed = ("client.id", "client.secret", "token.endpoint.url")
    missing = [name for name in needed if not options.get(_NAME + name)]
    if options.get(f"{_NAME}method") != "oidc" or missing:
        what = f"{_NAME}{missing[0]} is not given" if missing else f"{_NAME}method is not 'oidc'"
        raise ConfigurationError(f"{sink}: sasl.mechanism is OAUTHBEARER and {what}; {_REMEDY}")


def token_provider(options: Mapping[str, str]) -> Any:
    """Return kafka-python's token provider for these options: it asks the token endpoint, and asks
    again when four fifths of a token's time have passed. Raises OSError if it gets none."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def __init__(self) -> None:
            self._lock = threading.Lock()
            self._token, self._until = "", 0.0

        def token(self) -> str:
            with self._lock:
                if time.monotonic() >= self._until:
                    self._token, lifetime_s = _ask(options)
                    self._until = time.monotonic() + 0.8 * lifetime_s
                return self._token

        def extensions(self) -> dict[str, str]:
            listed = options.get(f"{_NAME}extensions", "")
            return dict(pair.split("=", 1) for pair in listed.split(",") if "=" in pair)

    return Provider()


def _ask(options: Mapping[str, str]) -> tuple[str, float]:
    """Return a token and for how many seconds it is good."""
    if msk_iam.OPTION in options:
        return msk_iam.sign(options)
    url = options[f"{_NAME}token.endpoint.url"]
    form = {"grant_type": "client_credentials"}
    if scope := options.get(f"{_NAME}scope"):
        form["scope"] = scope
    secret = f"{options[f'{_NAME}client.id']}:{options[f'{_NAME}client.secret']}"
    request = urllib.request.Request(
        url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()},
    )
    context = ssl.create_default_context(cafile=options.get("https.ca.location"))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:
            body = json.load(answer)
        return str(body["access_token"]), float(body.get("expires_in", 60))
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise OSError(f"authentication: no token from {url} ({why})") from error

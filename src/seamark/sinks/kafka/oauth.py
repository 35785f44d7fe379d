"""OAUTHBEARER by OIDC client credentials: the same settings for all three clients.

librdkafka, which writes, gets its tokens itself. kafka-python, which the driver uses, gets them
from `token_provider`. `model/kafka_options.py` has Java's names of them, `msk_iam.py` the tokens of
Amazon's MSK.
"""

import base64
import http.client
import json
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.kafka_options import OAUTH, OIDC_REMEDY
from seamark.sinks.kafka import msk_iam

_KNOWN = {
    f"{OAUTH}{name}"
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


def check(options: Mapping[str, str], sink: str) -> None:
    """Raise ConfigurationError for a login by OAUTHBEARER that is not whole, or of another kind."""
    if msk_iam.OPTION in options:
        return
    mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms", ""))
    given = {name for name in options if name.startswith(OAUTH)}
    if mechanism.upper() != "OAUTHBEARER":
        if given:
            raise ConfigurationError(
                f"{sink}: producer option {min(given)!r} is given, and sasl.mechanism is "
                f"{mechanism!r}; {OIDC_REMEDY}, or leave it out"
            )
        return
    if other := sorted(given - _KNOWN):
        raise ConfigurationError(
            f"{sink}: producer option {other[0]!r} is not supported, because the driver must "
            f"log in too; {OIDC_REMEDY}"
        )
    needed = ("client.id", "client.secret", "token.endpoint.url")
    missing = [name for name in needed if not options.get(OAUTH + name)]
    if options.get(f"{OAUTH}method") != "oidc" or missing:
        what = f"{OAUTH}{missing[0]} is not given" if missing else f"{OAUTH}method is not 'oidc'"
        raise ConfigurationError(f"{sink}: sasl.mechanism is OAUTHBEARER and {what}; {OIDC_REMEDY}")


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
            listed = options.get(f"{OAUTH}extensions", "")
            return dict(pair.split("=", 1) for pair in listed.split(",") if "=" in pair)

    return Provider()


def _ask(options: Mapping[str, str]) -> tuple[str, float]:
    """Return a token and for how many seconds it is good."""
    if msk_iam.OPTION in options:
        return msk_iam.sign(options)
    url = options[f"{OAUTH}token.endpoint.url"]
    form = {"grant_type": "client_credentials"}
    if scope := options.get(f"{OAUTH}scope"):
        form["scope"] = scope
    secret = f"{options[f'{OAUTH}client.id']}:{options[f'{OAUTH}client.secret']}"
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
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise OSError(f"authentication: no token from {url} ({why})") from error

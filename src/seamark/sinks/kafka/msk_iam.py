"""The login of Amazon's MSK, AWS_MSK_IAM, for clients other than Java's: tokens of OAUTHBEARER that
are signed with AWS credentials, by Amazon's own signer.

`from_java` takes the settings of Amazon's Java login, so one dict serves source and sink. Signing
asks no server, but for a role or for the machine's own credentials.
"""

import importlib
import importlib.util
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from seamark.model.errors import ConfigurationError, MissingDependencyError
from seamark.model.kafka_options import HANDLER, JAAS, jaas_values
from seamark.model.packages import install_command

OPTION = "msk.iam"
"""Ours, not librdkafka's: the values of the login module, as ``name=value`` separated by ``;``."""
MODULE = "IAMLoginModule"

_PROFILE, _ROLE, _SESSION = "awsProfileName", "awsRoleArn", "awsRoleSessionName"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_OF_JAVA = (JAAS, HANDLER, "sasl.client.callback.handler.class")
_MECHANISMS = ("AWS_MSK_IAM", "OAUTHBEARER")


def from_java(options: Mapping[str, str], sink: str) -> dict[str, str]:
    """Return options, of which a login may be Amazon's of Java, as ones for `oauth.py`.

    Raises ConfigurationError, and MissingDependencyError if the signer is not installed.
    """
    if MODULE not in options.get(JAAS, ""):
        return dict(options)
    values = jaas_values(options[JAAS])
    if unknown := sorted(values.keys() - {_PROFILE, _ROLE, _SESSION}):
        raise ConfigurationError(
            f"{sink}: sasl.jaas.config has {unknown[0]!r} for {MODULE}, which only Java's client "
            f"knows; give {_PROFILE}, or {_ROLE} and {_SESSION}, or neither for the usual AWS "
            "credentials"
        )
    mechanism = options.get("sasl.mechanism", "")
    if mechanism.upper() not in _MECHANISMS:
        raise ConfigurationError(
            f"{sink}: sasl.jaas.config has {MODULE}, and sasl.mechanism is {mechanism!r}; give "
            f"{_MECHANISMS[0]!r}"
        )
    if importlib.util.find_spec("aws_msk_iam_sasl_signer") is None:
        raise MissingDependencyError(
            f"{sink}: MSK's IAM login needs Amazon's signer: {install_command('msk')}"
        )
    login = ";".join(f"{name}={value}" for name, value in values.items())
    others = {name: value for name, value in options.items() if name not in _OF_JAVA}
    return {**others, "sasl.mechanism": "OAUTHBEARER", OPTION: login}


def sign(options: Mapping[str, str]) -> tuple[str, float]:
    """Return a token and for how many seconds it is good. Raises OSError if none can be signed."""
    signer = importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    given = dict(pair.split("=", 1) for pair in options[OPTION].split(";") if pair)
    try:
        region = _region(options["bootstrap.servers"])
        if role := given.get(_ROLE):
            session = given.get(_SESSION, "seamark")
            token, until_ms = signer.generate_auth_token_from_role_arn(region, role, session)
        elif profile := given.get(_PROFILE):
            token, until_ms = signer.generate_auth_token_from_profile(region, profile)
        else:
            token, until_ms = signer.generate_auth_token(region)
    except Exception as error:  # botocore's, or of the signer where there are no credentials
        why = f"{type(error).__name__}: {error}"
        raise OSError(f"authentication: no token could be signed for MSK ({why})") from error
    return str(token), until_ms / 1000 - time.time()


def for_librdkafka(
    settings: Mapping[str, str],
) -> tuple[dict[str, str], Callable[[], tuple[str, float]] | None]:
    """Return the settings that librdkafka knows, and what gives its tokens: None if it needs none
    of us."""
    known = {name: value for name, value in settings.items() if name != OPTION}
    return known, (lambda: sign(settings)) if OPTION in settings else None


def for_confluent(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings for a client of confluent-kafka."""
    known, ask = for_librdkafka(settings)
    if ask is None:
        return dict(known)

    def answer(_: object) -> tuple[str, float]:
        token, lifetime_s = ask()
        return token, time.time() + lifetime_s

    return {**known, "oauth_cb": answer}


def _region(servers: str) -> str:
    match = _REGION.search(servers)
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = match[1] if match else named
    if not region:
        raise ValueError(f"no region in the address {servers}; set AWS_REGION")
    return region

"""MSK's IAM login: Java's settings, and tokens signed by Amazon's signer; nothing asks a server."""

from __future__ import annotations

import base64
import importlib.util
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import seamark as sm
from seamark.model.errors import ConfigurationError, MissingDependencyError
from seamark.sinks.kafka import msk_iam, options

SERVERS = "b-1.shop.x.c2.kafka.eu-west-1.amazonaws.com:9098"
JAVA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A made-up key in the environment: no client looks further."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-of-tests")
    for name in ("AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def sink(servers: str = SERVERS, **changed: str) -> sm.KafkaSink:
    given = {f"kafka.{name}": value for name, value in {**JAVA, **changed}.items()}
    return sm.KafkaSink(servers, topic="t", transactional_id_prefix="p", producer_options=given)


def with_login(text: str) -> dict[str, str]:
    return {"sasl.jaas.config": f"software.amazon.msk.auth.iam.IAMLoginModule required {text};"}


def decoded(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def test_javas_login_becomes_tokens_of_both_clients() -> None:
    settings = dict(sink().producer_settings("sink").settings)
    known, ask = msk_iam.for_librdkafka(settings)
    assert ask is not None
    assert not [name for name in known if "jaas" in name or "handler" in name or "msk" in name]
    assert (known["sasl.mechanism"], known["security.protocol"]) == ("OAUTHBEARER", "SASL_SSL")
    admin = options.admin_options(SERVERS, sink().option_texts)
    assert admin["sasl_mechanism"] == "OAUTHBEARER"
    signed = urlsplit(decoded(admin["sasl_oauth_token_provider"].token()))
    query = parse_qs(signed.query)
    assert signed.hostname == "kafka.eu-west-1.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIATEST/")
    assert query["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    token, lifetime_s = ask()
    assert decoded(token).startswith("https://kafka.eu-west-1.amazonaws.com/?")
    assert 800 < lifetime_s <= 900
    assert "s3cr3t" not in decoded(token) + repr(sink()) + str(settings)


def test_the_region_of_other_addresses_is_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = dict(sink("kafka.internal:9098").producer_settings("sink").settings)
    with pytest.raises(OSError, match=r"no region in the address kafka\.internal:9098; set"):
        msk_iam.sign(settings)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert "kafka.eu-north-1." in decoded(msk_iam.sign(settings)[0])


def test_a_login_that_signs_nothing_is_said() -> None:
    login = with_login('awsProfileName="no-such-profile"')
    settings = dict(sink(**login).producer_settings("sink").settings)
    with pytest.raises(OSError, match=r"no token could be signed for MSK.*no-such-profile"):
        msk_iam.sign(settings)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (with_login('awsStsRegion="x"'), "'awsStsRegion' for IAMLoginModule, which only Java's"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism is 'PLAIN'; give 'AWS_MSK_IAM'"),
    ],
)
def test_what_only_java_can_do_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        sink(**changed)


def test_the_signer_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'pyspark-seamark\[msk\]'"):
        sink()


def test_a_source_takes_the_same_settings_as_they_are() -> None:
    given = {f"kafka.{name}": value for name, value in JAVA.items()}
    read = sm.KafkaSource(SERVERS, topics="t", options=given).reader().options
    assert {name: read[name] for name in given} == given

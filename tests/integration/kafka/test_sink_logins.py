"""Logins without a password at the broker: OIDC tokens from a real endpoint, mutual TLS.

How: every step of the protocol over each listener, then a whole job whose source and sink log in
so, killed on the way. Rows are read over the listener without limits.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from seamark.model.errors import PreflightError, SeamarkError
from seamark.sinks.kafka import KafkaSink, msk_iam, native_library
from tests.chaos.scenario import PassthroughScenario
from tests.class_archive import JAVA_OPTIONS
from tests.integration.kafka import sink_kit as kit
from tests.servers.login_kafka import ALLOWED, SECRET, LoginKafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginKafka]:
    with LoginKafka(tmp_path_factory.mktemp("logins")) as made:
        yield made


def topic(broker: LoginKafka) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(300)
    return name


def sink_on(broker: LoginKafka, name: str, options: dict[str, object]) -> KafkaSink:
    listener = "MUTUAL" if options["security.protocol"] == "SSL" else "OAUTH"
    return KafkaSink(
        broker.cluster.address(listener), topic=name, transactional_id_prefix=name,
        producer_options=options,
    )  # fmt: skip


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("login", ["by_token", "by_certificate"])
def test_every_step_of_the_protocol(
    broker: LoginKafka, login: str, by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_row:
        monkeypatch.setattr(native_library, "load", lambda: None)
    name = topic(broker)
    sink = sink_on(broker, name, getattr(broker, login)())
    kit.every_step_of_the_protocol(sink, broker.cluster.bootstrap_servers, name)
    assert login != "by_token" or broker.tokens.given >= 2


@pytest.mark.parametrize("by_row", [False, True])
def test_tokens_of_our_own_making(
    broker: LoginKafka, by_row: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MSK's login at a broker without IAM: its tokens are signed by the broker's own provider, and
    end soon, so that the clients ask again."""
    if by_row:
        monkeypatch.setattr(native_library, "load", lambda: None)
    given = broker.tokens.given
    monkeypatch.setattr(msk_iam, "sign", lambda options: (broker.tokens.token(6), 6.0))
    name = topic(broker)
    login = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.authority),
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    }
    sink = sink_on(broker, name, login)
    kit.every_step_of_the_protocol(sink, broker.cluster.bootstrap_servers, name)
    assert broker.tokens.given >= given + 2
    selective = sink.create_selective_writer(kit.attempt(kit.new_job()))
    assert not selective.write_accepted(kit.numbers([1]))
    selective.abort()


def test_a_wrong_secret_is_said_soon_and_not_shown(broker: LoginKafka) -> None:
    sink = sink_on(broker, topic(broker), broker.by_token("wr0ng-" + SECRET))
    started = time.monotonic()
    with (
        pytest.raises(PreflightError, match=r"(?is)token.*sasl\.\*") as caught,
        kit.committing(sink, kit.driver(kit.new_job()), preflight=True),
    ):
        pass
    assert time.monotonic() - started < 60
    with pytest.raises(SeamarkError) as also:
        kit.prepare(sink, kit.attempt(kit.new_job()), range(3))
    for shown in (str(caught.value), str(also.value), repr(sink)):
        assert SECRET not in shown


def test_no_certificate_is_said(broker: LoginKafka) -> None:
    options = broker.by_certificate()
    del options["ssl.certificate.location"], options["ssl.key.location"]
    sink = sink_on(broker, topic(broker), options)
    with (
        pytest.raises(PreflightError, match=r"ssl\.\*"),
        kit.committing(sink, kit.driver(kit.new_job()), preflight=True),
    ):
        pass


@pytest.mark.parametrize("login", ["by_token", "by_token_in_java", "by_certificate"])
def test_a_job_killed_and_recovered(broker: LoginKafka, login: str, tmp_path: Path) -> None:
    """The source has the sink's settings, or Java's."""
    settings = getattr(broker, login)()
    options: dict[str, Any] = {
        "source_options": {f"kafka.{name}": value for name, value in settings.items()},
        "producer_options": broker.by_token() if login == "by_token_in_java" else settings,
    }
    with PassthroughScenario(tmp_path, broker.cluster.bootstrap_servers, **options) as scenario:
        listener = "MUTUAL" if login == "by_certificate" else "OAUTH"
        scenario.options["servers"] = broker.cluster.address(listener)
        allowed = f"{JAVA_OPTIONS} -D{ALLOWED}={broker.tokens.url}"
        scenario.environment["JAVA_TOOL_OPTIONS"] = allowed
        driver = scenario.die_at_each(["prepared:2", "sealed:2"])
        scenario.finish(driver)
        assert scenario.open_transactions() == []
    secret = SECRET.encode()
    found = [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert found == []

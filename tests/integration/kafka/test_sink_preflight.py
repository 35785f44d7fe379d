"""Each condition checked against the real broker at start, with its error."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import PreflightError
from seamark.sinks.kafka import preflight as preflight_checks
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]
REPO = Path(__file__).parents[3]


def preflight(servers: str, topic: str | None, **more: Any) -> None:
    with kit.committing(
        kit.sink_on(servers, topic, **more), kit.driver(kit.new_job())
    ) as committer:
        committer.preflight()


def test_all_is_well(kafka: LocalKafka, topic: Topic) -> None:
    started = time.monotonic()
    preflight(kafka.bootstrap_servers, topic())
    preflight(kafka.bootstrap_servers, None, transactional_id_prefix=f"rows-{topic()}")
    preflight(kafka.bootstrap_servers, topic(), delivery_guarantee="at-least-once")
    assert time.monotonic() - started < 60


def test_a_missing_topic_is_named_and_not_created(kafka: LocalKafka) -> None:
    from confluent_kafka.admin import AdminClient

    with pytest.raises(PreflightError, match=r"`orders-out`: topic 'no-such-topic'.*--create"):
        preflight(kafka.bootstrap_servers, "no-such-topic")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert "no-such-topic" not in admin.list_topics(timeout=20).topics


def test_a_topic_that_was_just_created_is_waited_for(
    kafka: LocalKafka, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker hears of a topic from the controller a little later, on a busy machine seconds."""
    from confluent_kafka.admin import AdminClient, NewTopic

    monkeypatch.setattr(preflight_checks, "TOPIC_APPEARS_S", 60.0)
    name = f"late-{topic()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    started = time.monotonic()
    timer = threading.Timer(1.0, lambda: admin.create_topics([NewTopic(name, 1, 1)]))
    timer.start()
    preflight(kafka.bootstrap_servers, name)
    timer.join()
    assert time.monotonic() - started >= 1


def test_a_timeout_above_the_brokers_maximum(kafka: LocalKafka, topic: Topic) -> None:
    with pytest.raises(
        PreflightError,
        match=r"timeout 901s is above the broker's transaction.max.timeout.ms of 900s",
    ):
        preflight(kafka.bootstrap_servers, topic(), transaction_timeout="901s")


def test_no_broker_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{free.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(PreflightError, match=f"no broker answers at {servers}"):
            preflight(servers, "orders")
        assert time.monotonic() - started < 60


def test_an_option_that_librdkafka_does_not_know(kafka: LocalKafka, topic: Topic) -> None:
    with pytest.raises(PreflightError, match=r"no\.such\.option"):
        preflight(kafka.bootstrap_servers, topic(), producer_options={"no.such.option": 1})
    with pytest.raises(PreflightError, match=r"message\.timeout\.ms"):
        preflight(
            kafka.bootstrap_servers, topic(), transaction_timeout="10s",
            producer_options={"delivery.timeout.ms": 20_000},
        )  # fmt: skip


def test_credentials_that_the_listener_does_not_take_show_no_password(
    kafka: LocalKafka, topic: Topic
) -> None:
    options = {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "me", "sasl.password": "hunter2-s3cr3t",
    }  # fmt: skip
    with pytest.raises(PreflightError, match=r"no broker answers.*security.protocol") as caught:
        preflight(kafka.bootstrap_servers, topic(), producer_options=options)
    assert "hunter2" not in str(caught.value)


def test_another_jobs_open_transaction_under_the_prefix_is_warned_of(
    kafka: LocalKafka, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    sink = kit.sink_on(kafka.bootstrap_servers, topic())
    one, other = kit.new_job(), kit.new_job()
    opened = kit.prepare(sink, kit.attempt(one), range(3))

    def warned(job: str, uid: str = kit.UID) -> list[str]:
        caplog.clear()
        with kit.committing(sink, kit.driver(job, uid=uid), preflight=True):
            return [r.getMessage() for r in caplog.records if "KF002" in r.getMessage()]

    with caplog.at_level("WARNING", "seamark"):
        (said,) = warned(other)
        assert opened.handle.partition(" ")[0].partition("/")[0] in said
        # The same job's next driver, and its second sink, share it.
        assert warned(one) == warned(one, "second") == []
        # Neither job ends the other's.
        kit.abort_all(sink, other)
        with kit.committing(sink, kit.driver(one)) as committer:
            assert kit.until_proved(committer.commit, [opened]) == [CommitOutcome.COMMITTED]
        assert warned(other) == []
    assert len(kit.visible(kafka.bootstrap_servers, sink.topic)) == 3

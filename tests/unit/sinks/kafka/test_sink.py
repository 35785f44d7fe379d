"""KafkaSink as configuration: the refusals and their texts; columns; secrets. No broker."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from seamark.contracts.sink import SinkContext
from seamark.model.errors import ConfigurationError
from seamark.model.guarantee import SinkWay
from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka.options import admin_options, redacted
from seamark.sinks.kafka.producer_pool import PoolKey

SECRET = "hunter2-s3cr3t"
AVRO = {
    "value_format": "avro",
    "schema_registry": {"url": "http://host", "basic.auth.user.info": f"me:{SECRET}"},
}


def sink(**changes: Any) -> KafkaSink:
    settings: dict[str, Any] = {
        "bootstrap_servers": "localhost:9092", "topic": "orders",
        "transactional_id_prefix": "shop", **changes,
    }  # fmt: skip
    return KafkaSink(**settings)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {"transactional_id_prefix": None},
            ["'orders'", "transactional_id_prefix is None", "give"],
        ),
        ({"transactional_id_prefix": " "}, ["transactional_id_prefix is ' '"]),
        ({"delivery_guarantee": "exactly_once"}, ["'exactly_once'", "'at-least-once'"]),
        ({"bootstrap_servers": ""}, ["bootstrap_servers is ''", "localhost:9092"]),
        ({"bootstrap_servers": "a:1,,b:2"}, ["bootstrap_servers"]),
        ({"bootstrap_servers": None}, ["bootstrap_servers is None"]),
        ({"bootstrap_servers": "kafka://a:1"}, ["'kafka://a:1'; give text, 'localhost:9092'"]),
        ({"bootstrap_servers": "a:1;b:2"}, ["bootstrap_servers is 'a:1;b:2'"]),
        ({"bootstrap_servers": "a:99999"}, ["bootstrap_servers is 'a:99999'"]),
        ({"bootstrap_servers": ["a:1", "b:2"]}, ["['a:1', 'b:2']; give text", "commas"]),
        ({"topic": ""}, ["topic is ''"]),
        ({"topic": "a b"}, ["topic is 'a b'"]),
        ({"topic": "x" * 250}, ["249"]),
        ({"transaction_timeout": "soon"}, ["transaction_timeout", "'soon'", "10min"]),
        ({"transaction_timeout": 0}, ["transaction_timeout is 0"]),
        ({"transaction_timeout": "40d"}, ["transaction.max.timeout.ms"]),
        ({"producer_options": {"transactional.id": "x"}}, ["transactional_id_prefix="]),
        ({"producer_options": {"transaction.timeout.ms": 1}}, ["transaction_timeout="]),
        ({"producer_options": {"bootstrap.servers": "x"}}, ["bootstrap_servers="]),
        ({"producer_options": {"enable.idempotence": False}}, ["enable.idempotence", "twice"]),
        ({"producer_options": {"acks": 1}}, ["acks", "'all'"]),
        ({"producer_options": {"statistics.interval.ms": 5}}, ["statistics.interval.ms"]),
        ({"producer_options": {"linger.ms": object()}}, ["linger.ms", "object"]),
        ({"producer_options": {"ssl.ca.pem": SECRET}}, ["ssl.ca.location"]),
        (
            {"producer_options": {"enable.ssl.certificate.verification": False}},
            ["enable.ssl.certificate.verification", "ssl.ca.location"],
        ),
        ({"value_format": "JSON"}, ["value_format is 'JSON'", "'json' or 'avro'"]),
        ({"value": ["a", "b"]}, ["a, b", 'value_format="json"']),
        ({"key": 5}, ["key is 5", "name"]),
        ({"key": ["a", "A"]}, ["key is ['a', 'A']", "once"]),
        ({"value": [""]}, ["value is ['']"]),
        ({"value_format": "avro"}, ["schema_registry=", "http://host:8081"]),
        ({"value_format": "avro", "schema_registry": {"url": 8081}}, ["found int for the url"]),
        (
            {"value_format": "avro", "schema_registry": {"url": f"http://me:{SECRET}@host"}},
            ["basic.auth.user.info"],
        ),
        (
            {"value_format": "avro", "topic": None, "schema_registry": {"url": "http://host"}},
            ["topic is None", "topic="],
        ),
        (
            {**AVRO, "value_schema": '{"type": "string"}'},
            ['value_schema is \'{"type": "string"}\'', "record"],
        ),
        ({**AVRO, "value_schema": "no JSON"}, ["value_schema is 'no JSON'"]),
        ({**AVRO, "value_schema": '{"type": "record"}'}, ["not the JSON text of an Avro record"]),
        ({**AVRO, "value_schema": '{"type": "record", "fields": ["a"]}'}, ["Avro record"]),
        ({"schema_registry": {"url": "http://host"}}, ["schema_registry", "value_format is None"]),
        ({"value_format": "json", "value_schema": "{}"}, ["value_schema", "leave it out"]),
    ],
)
def test_a_bad_value_is_refused_with_the_value_and_the_remedy(
    changes: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sink(**changes)
    for part in ["KafkaSink", *parts]:
        assert part in str(caught.value)
    assert SECRET not in str(caught.value)


def test_at_least_once_needs_no_prefix_and_is_no_two_phase_commit() -> None:
    plain = KafkaSink("localhost:9092", topic="orders", delivery_guarantee="at-least-once")
    assert plain.way is SinkWay.NONE
    assert sink().way is SinkWay.TWO_PHASE_COMMIT
    plain.check_transaction_scope(SinkContext("j", "n", "u", 1, 1e9))


def test_secrets_are_shown_nowhere_and_reach_both_clients() -> None:
    secrets = {"sasl.password": SECRET, "ssl.key.password": SECRET}
    with_secret = sink(producer_options={**secrets, "sasl.username": "me"}, **AVRO)
    config = with_secret.producer_settings("sink `u`")
    key = PoolKey(config=config, prefix="p", owner="o", generation=1, by_row=False)
    for text in (
        repr(with_secret),
        str(with_secret),
        with_secret.describe(),
        repr(config),
        repr(key),
    ):
        assert SECRET not in text
    assert "sasl.username" in repr(with_secret)
    assert "http://host" in repr(with_secret)
    assert dict(config.settings)["sasl.password"] == SECRET
    assert admin_options("a:1", secrets)["sasl_plain_password"] == SECRET
    assert redacted(f"no: {SECRET}!", secrets) == "no: ***!"


def test_it_is_picklable_comparable_and_takes_no_later_change() -> None:
    options: dict[str, object] = {"compression.type": "zstd", "socket.keepalive.enable": True}
    one = sink(producer_options=options)
    options["compression.type"] = "none"
    assert pickle.loads(pickle.dumps(one)) == one
    settings = dict(one.producer_settings("s").settings)
    assert settings["compression.type"] == "zstd"
    assert settings["socket.keepalive.enable"] == "true"


@pytest.mark.parametrize(
    ("options", "kbytes"),
    [
        ({"message.max.bytes": 2_000_000}, "65536"),
        ({"max.request.size": 102_400_000}, "200000"),
        ({"message.max.bytes": 102_400_000, "queue.buffering.max.kbytes": 150_000}, "150000"),
    ],
)
def test_the_queue_holds_two_of_the_largest_rows_unless_it_is_given(
    options: dict[str, object], kbytes: str
) -> None:
    settings = dict(sink(producer_options=options).producer_settings("s").settings)
    assert settings["queue.buffering.max.kbytes"] == kbytes


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"queue.buffering.max.kbytes": 64}, "at least 1024"),
        ({"buffer.memory": 65_536}, "at least 1024"),
        ({"queue.buffering.max.kbytes": 64, "message.max.bytes": 65_537}, "at least 65"),
    ],
)
def test_a_queue_that_no_largest_row_fits_into_is_refused(
    options: dict[str, object], remedy: str
) -> None:
    with pytest.raises(ConfigurationError, match="max.kbytes is 64: .*for ever; give " + remedy):
        sink(producer_options=options)
    assert sink(producer_options={"queue.buffering.max.kbytes": 64, "message.max.bytes": 65_536})


def test_options_win_over_our_defaults_but_not_over_what_is_ours() -> None:
    options = {"linger.ms": 0, "delivery.timeout.ms": 5000}
    one = sink(producer_options=options, transaction_timeout="60s")
    settings = dict(one.producer_settings("s").settings)
    assert settings["linger.ms"] == "0"
    assert "message.timeout.ms" not in settings
    assert settings["enable.idempotence"] == "true"
    assert settings["transaction.timeout.ms"] == "60000"
    # librdkafka refuses a message timeout above the transaction's.
    assert (
        dict(sink(transaction_timeout="60s").producer_settings("s").settings)["message.timeout.ms"]
        == "60000"
    )


def test_the_transaction_timeout_must_be_above_the_interval() -> None:
    context = SinkContext("j", "n", "orders", 1, checkpoint_interval_s=300)
    for spool in (False, True):
        short = sink(transaction_timeout="60s", spool=spool)
        with pytest.raises(
            ConfigurationError,
            match=r"sink `orders`: transaction timeout 60s is not above checkpoint interval 300s"
            r".*; raise transaction_timeout above 300s",
        ):
            short.check_transaction_scope(context)
        sink(transaction_timeout="301s", spool=spool).check_transaction_scope(context)


def waits(interval_s: float, timeout_s: float, restart_s: float) -> SinkContext:
    return SinkContext(
        "j", "n", "orders", 1, interval_s, checkpoint_timeout_s=timeout_s, restart_delay_s=restart_s
    )


@pytest.mark.parametrize(
    ("context", "sum_"),
    [
        (waits(10, 3600, 0), "interval 10s + timeout 3600s + restart delay 0s = 3610s"),
        (waits(300, 600, 0), "interval 300s + timeout 600s + restart delay 0s = 900s"),
        (waits(10, 600, 300), "interval 10s + timeout 600s + restart delay 300s = 910s"),
    ],
)
def test_the_transaction_timeout_must_outlive_the_latest_decision_and_a_restart(
    context: SinkContext, sum_: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        sink().check_transaction_scope(context)
    for part in ("sink `orders`", "transaction timeout 900s", sum_, "lower CheckpointConfig",
                 "spool=True", "transaction.max.timeout.ms"):  # fmt: skip
        assert part in str(error.value)
    sink(spool=True).check_transaction_scope(context)
    sink(transaction_timeout="2h").check_transaction_scope(context)


def test_default_settings_pass_and_so_does_a_query_without_timeout() -> None:
    sink().check_transaction_scope(waits(10, 600, 60))
    sink().check_transaction_scope(waits(10, math.inf, 0))


def test_a_spool_is_for_transactions() -> None:
    assert sink(spool=True).spool is True
    with pytest.raises(ConfigurationError, match="spool=True is for 'exactly-once' alone"):
        KafkaSink("localhost:9092", topic="t", delivery_guarantee="at-least-once", spool=True)

"""KafkaSource: every argument's mistakes are refused by name, and each setting becomes its option.

No broker: the options are compared with those in Spark's Kafka integration guide;
tests/integration/kafka/test_kafka_source.py reads with them.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from math import inf
from typing import Any

import pytest

from seamark.model.errors import ConfigurationError
from seamark.model.findings import Severity
from seamark.sources.kafka import KafkaSource
from seamark.sources.kafka_admin import Retention, not_told, retention_too_short

SERVERS = "a.example:9092,[::1]:9093"


def options(**settings: Any) -> dict[str, str]:
    return dict(KafkaSource(SERVERS, **{"topics": "clicks", **settings}).reader().options)


def test_the_defaults_read_all_committed_rows_and_stop_at_data_loss() -> None:
    source = KafkaSource(SERVERS, topics=["clicks", "orders"])
    reader = source.reader()
    assert reader.format == "kafka"
    assert reader.schema is None
    assert reader.options == {
        "kafka.bootstrap.servers": SERVERS,
        "subscribe": "clicks,orders",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        "kafka.max.poll.records": "10000",
        "kafka.fetch.max.wait.ms": "20",
    }
    assert source.replayable
    assert not source.bounded
    assert source.describe() == "Kafka topics clicks, orders"


def test_one_topic_may_be_given_as_text() -> None:
    assert KafkaSource(SERVERS, topics="clicks").topics == ("clicks",)


def test_a_pattern_subscribes_to_topics_that_match() -> None:
    source = KafkaSource(SERVERS, pattern="clicks-.*")
    assert source.reader().options["subscribePattern"] == "clicks-.*"
    assert "subscribe" not in source.reader().options
    assert source.describe() == "Kafka topics like clicks-.*"


def test_ending_latest_bounds_the_source() -> None:
    assert KafkaSource(SERVERS, topics="clicks", ending="latest").bounded


def test_reading_uncommitted_is_said_in_the_description() -> None:
    source = KafkaSource(SERVERS, topics="clicks", isolation_level="read_uncommitted")
    assert source.reader().options["kafka.isolation.level"] == "read_uncommitted"
    assert "read_uncommitted" in source.describe()


def test_offsets_of_each_partition_become_json() -> None:
    found = options(starting_offsets={"clicks": {0: 12, 1: -2, 2: -1}})
    assert json.loads(found["startingOffsets"]) == {"clicks": {"0": 12, "1": -2, "2": -1}}


@pytest.mark.parametrize(
    "moment",
    [
        "2026-01-31T08:00:00Z",
        "2026-01-31T09:00:00+01:00",
        datetime(2026, 1, 31, 8, tzinfo=timezone.utc),
        datetime(2026, 1, 31, 10, tzinfo=timezone(timedelta(hours=2))),
    ],
)
def test_a_moment_becomes_milliseconds_whatever_its_zone(moment: Any) -> None:
    found = options(starting_offsets=moment)
    assert found["startingTimestamp"] == "1769846400000"
    assert found["startingOffsetsByTimestampStrategy"] == "latest"
    assert "startingOffsets" not in found


def test_no_row_before_a_moment_is_read() -> None:
    moment = datetime(2026, 1, 31, 8, microsecond=1, tzinfo=timezone.utc)
    assert options(starting_offsets=moment)["startingTimestamp"] == "1769846400001"
    assert options(starting_offsets="1969-12-31T00:00:00Z")["startingTimestamp"] == "0"


def test_group_id_is_the_prefix_of_sparks_groups() -> None:
    assert options(group_id="counter")["groupIdPrefix"] == "counter"


def test_other_options_pass_through_and_may_allow_data_loss() -> None:
    found = options(
        options={
            "maxOffsetsPerTrigger": 5000,
            "FailOnDataLoss": False,
            "kafka.Max.poll.records": 500,
        }
    )
    assert found["maxOffsetsPerTrigger"] == "5000"
    assert found["kafka.Max.poll.records"] == "500"
    assert "kafka.max.poll.records" not in found
    assert found["FailOnDataLoss"] == "false"
    assert "failOnDataLoss" not in found


def test_no_secret_is_shown() -> None:
    source = KafkaSource(
        SERVERS, topics="clicks", options={"kafka.sasl.jaas.config": "password=hunter2"}
    )
    assert "hunter2" not in source.describe() + repr(source)
    assert source.reader().options["kafka.sasl.jaas.config"] == "password=hunter2"


def test_a_refused_options_value_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as error:
        options(options={"kafka.password": ["hunter2"]})
    assert "kafka.password" in str(error.value)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"bootstrap_servers": ""}, ["bootstrap_servers", "''", "host:port"]),
        ({"bootstrap_servers": "a:99999"}, ["bootstrap_servers is 'a:99999'", "host:port"]),
        ({"bootstrap_servers": "kafka"}, ["bootstrap_servers", "'kafka'"]),
        ({"bootstrap_servers": "a:1,"}, ["bootstrap_servers", "'a:1,'"]),
        ({"bootstrap_servers": ["a:1"]}, ["bootstrap_servers", "['a:1']"]),
        ({"topics": None}, ["topics", "pattern", "exactly one"]),
        ({"pattern": "c.*"}, ["topics", "pattern", "exactly one"]),
        ({"topics": []}, ["topics is []"]),
        ({"topics": ""}, ["topics is ''"]),
        ({"topics": "a,b"}, ["topics is 'a,b'", "list"]),
        ({"topics": ["a", "a"]}, ["topics is ['a', 'a']", "once"]),
        ({"topics": [1]}, ["topics is [1]"]),
        ({"topics": {"a"}}, ["topics is {'a'}"]),
        ({"topics": "clicks "}, ["topics is 'clicks '", "letters"]),
        ({"topics": ["clicks", "a/b"]}, ["topics is ['clicks', 'a/b']"]),
        ({"topics": "x" * 250}, ["topics is 'x", "249"]),
        ({"topics": None, "pattern": ""}, ["pattern is ''"]),
        ({"starting_offsets": "first"}, ["starting_offsets is 'first'", "earliest"]),
        ({"starting_offsets": 5}, ["starting_offsets is 5"]),
        ({"starting_offsets": "2026-01-31T08:00:00"}, ["2026-01-31T08:00:00", "time zone"]),
        ({"starting_offsets": datetime(2026, 1, 31)}, ["datetime", "time zone"]),
        ({"starting_offsets": {}}, ["starting_offsets", "[]"]),
        ({"starting_offsets": {"other": {0: 1}}}, ["['other']", "every partition"]),
        ({"starting_offsets": {"clicks": {}}}, ["'clicks': {}"]),
        ({"starting_offsets": {"clicks": 7}}, ["'clicks': 7"]),
        ({"starting_offsets": {"clicks": {"0": 7}}}, ["'clicks': {'0': 7}"]),
        ({"starting_offsets": {"clicks": {0: -3}}}, ["'clicks': {0: -3}", "-2"]),
        ({"starting_offsets": {"clicks": {0: 2**63}}}, ["'clicks': {0: 9223372036854775808}"]),
        ({"starting_offsets": {"clicks": {0: True}}}, ["'clicks': {0: True}"]),
        ({"ending": "now"}, ["KafkaSource clicks: ending is 'now'", "'latest'"]),
        ({"group_id": ""}, ["group_id is ''"]),
        ({"group_id": 3}, ["group_id is 3"]),
        ({"isolation_level": "committed"}, ["isolation_level is 'committed'", "read_committed"]),
        ({"options": None}, ["options", "NoneType", "dict"]),
        ({"options": {1: "a"}}, ["options has the key 1"]),
        ({"options": {"minPartitions": 1, "MINPARTITIONS": 2}}, ["'MINPARTITIONS' twice", "case"]),
        ({"options": {"subscribe": "x"}}, ["'subscribe'", "topics="]),
        ({"options": {"SubscribePattern": "x"}}, ["'SubscribePattern'", "pattern="]),
        ({"options": {"kafka.bootstrap.servers": "x"}}, ["bootstrap_servers="]),
        ({"options": {"kafka.isolation.level": "x"}}, ["isolation_level="]),
        ({"options": {"kafka.group.id": "x"}}, ["group_id="]),
        ({"options": {"groupIdPrefix": "x"}}, ["group_id="]),
        ({"options": {"startingOffsetsByTimestamp": "x"}}, ["starting_offsets="]),
        ({"options": {"endingOffsets": "latest"}}, ["ending='latest'"]),
        ({"options": {"kafka.enable.auto.commit": True}}, ["checkpoint"]),
    ],
)
def test_a_mistake_names_the_argument_the_value_and_the_remedy(
    settings: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as error:
        KafkaSource(**{"bootstrap_servers": "a:9092", "topics": "clicks", **settings})
    assert str(error.value).startswith("KafkaSource")
    for part in named:
        assert part in str(error.value)


def test_topics_that_forget_before_a_job_is_back_are_found() -> None:
    topics = [Retention("clicks", 3600.0), Retention("orders", 86_400.0), Retention("all", inf)]
    (finding,) = retention_too_short("in", topics, 86_400.0)
    assert finding.code.name == "SC004"
    assert "'clicks' keeps rows for 3600s, and the job may be down for 86400s" in finding.found


@pytest.mark.parametrize(
    ("said", "code", "severity"),
    [
        ("TimeoutException: no node", "SV001", Severity.ERROR),
        ("TopicAuthorizationException: denied", "SV003", Severity.NOTE),
    ],
)
def test_brokers_that_do_not_tell_the_retention(said: str, code: str, severity: Severity) -> None:
    finding = not_told("in", "b:1", OSError(said))
    assert (finding.code.name, finding.weight) == (code, severity)

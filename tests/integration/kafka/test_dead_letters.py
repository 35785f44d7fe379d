"""Rows refused by Kafka, found before they are sent: a refusal of the broker's would end the whole
transaction.

How: a real broker, and topics with limits of their own. The suite for such writers is in
`test_sink_conformance.py`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from kafka.admin import KafkaAdminClient

from seamark.contracts.sink import CommitOutcome
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import WriteRefusedError
from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka.row_producer import BAD_HEADER, BAD_TOPIC
from tests.integration.kafka import sink_kit as kit


def limited_topic(kafka: LocalKafka, name: str, largest_bytes: int, partitions: int = 1) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    config = {"max.message.bytes": str(largest_bytes)}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(300)
    return name


def rows(values: list[bytes], **columns: Any) -> pa.RecordBatch:
    keys = pa.array([b"k"] * len(values), pa.binary())
    return pa.record_batch({"key": keys, "value": pa.array(values, pa.binary()), **columns})


def commit(sink: KafkaSink, job: str, writer: Any) -> None:
    with kit.committing(sink, kit.driver(job), preflight=True) as committer:
        outcomes = kit.until_proved(committer.commit, writer.prepare_commit())
    assert outcomes == [CommitOutcome.COMMITTED]


def values(kafka: LocalKafka, name: str) -> list[bytes]:
    return [message.value() for message in kit.records(kafka.bootstrap_servers, name)]


def test_the_topics_limit_holds_for_rows_and_for_batches(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """2,000 small rows are ten times the topic's limit of a batch."""
    name = limited_topic(kafka, topic() + "-small", 10_000)
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    job = kit.new_job()
    writer = sink.create_selective_writer(kit.attempt(job))
    fits, too_large = b"f" * 9_899, b"t" * 9_900  # with a key of one byte
    batch = rows([*[b"%050d" % i for i in range(2000)], fits, too_large, b"", fits])
    (refused,) = writer.write_accepted(batch)
    assert refused.index == 2001
    assert refused.reason == (
        f"key, value and headers have 9901 bytes, and a row of topic {name!r} may have 9900"
    )
    commit(sink, job, writer)
    assert len(values(kafka, name)) == 2003


def test_each_row_has_a_topic_and_a_partition_that_exist(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    small, other = limited_topic(kafka, topic() + "-small", 2_000), topic(2)
    sink = kit.sink_on(kafka.bootstrap_servers, None)
    job = kit.new_job()
    writer = sink.create_selective_writer(kit.attempt(job))
    headers_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    many = [{"key": "h", "value": b"v" * 600}] * 4
    batch = rows(
        [b"0", b"1" * 5_000, b"2" * 5_000, b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"a", b"b"],
        topic=[small, small, other, None, "no-such-topic", "no such name", other, other, small,
               small, small, ""],
        partition=pa.array([0, 0, 1, 0, 0, 0, 2, -1, None, None, None, None], pa.int32()),
        headers=pa.array(
            [[], None, many, None, None, None, None, None, many,
             [{"key": "h", "value": None}, {"key": None, "value": b"v"}], [None], None],
            headers_type,
        ),
    )  # fmt: skip
    reasons = {row.index: row.reason for row in writer.write_accepted(batch)}
    assert list(reasons) == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert "have 5001 bytes" in reasons[1]
    assert "no topic" in reasons[3]
    assert "no-such-topic" in reasons[4]
    assert "no such name" in reasons[5]
    assert reasons[6] == "the column `partition` is 2, and the topic has 2"
    assert reasons[7] == "the column `partition` is -1"
    assert "have 2446 bytes" in reasons[8]
    assert reasons[9] == reasons[10] == BAD_HEADER
    assert reasons[11] == "the row has no topic: the column `topic` is empty"
    commit(sink, job, writer)
    assert values(kafka, small) == [b"0"]
    assert values(kafka, other) == [b"2" * 5_000]


def test_a_partition_made_meanwhile_takes_its_rows(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    name, job = topic(1), kit.new_job()
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    writer = sink.create_selective_writer(kit.attempt(job))
    assert not writer.write_accepted(rows([b"0"], partition=pa.array([0], pa.int32())))
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.create_partitions({name: 3})
        while len(admin.describe_topics([name])[0]["partitions"]) < 3:
            time.sleep(0.02)
    refused = writer.write_accepted(rows([b"2", b"3"], partition=pa.array([2, 3], pa.int32())))
    assert [row.index for row in refused] == [1]
    commit(sink, job, writer)
    assert values(kafka, name) == [b"0", b"2"]


def test_a_topic_or_a_headers_key_that_is_not_utf8_refuses_its_row(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """Spark's CAST makes such texts of bytes."""
    name = topic()
    sink, job = kit.sink_on(kafka.bootstrap_servers, None), kit.new_job()
    wrong = pa.array([b"a\xffb"], pa.binary()).view(pa.string())
    header = pa.StructArray.from_arrays([wrong, pa.array([b"v"])], ["key", "value"])
    batch = rows(
        [b"0", b"1", b"2"],
        topic=pa.concat_arrays([pa.array([name]), wrong, pa.array([name])]),
        headers=pa.ListArray.from_arrays(pa.array([0, 0, 0, 1], pa.int32()), header),
    )
    writer = sink.create_selective_writer(kit.attempt(job))
    found = writer.write_accepted(batch)
    assert [(row.index, row.reason) for row in found] == [(1, BAD_TOPIC), (2, BAD_HEADER)]
    commit(sink, job, writer)
    assert values(kafka, name) == [b"0"]
    for row, why in ((1, BAD_TOPIC), (2, BAD_HEADER)):
        plain = sink.create_writer(kit.attempt(job, epoch=row))
        with pytest.raises(WriteRefusedError, match=why):
            plain.write(batch.slice(row, 1))
        plain.abort()


@pytest.mark.parametrize("largest", [200, 5_000_000])
def test_librdkafkas_own_limit_holds_too(
    kafka: LocalKafka, topic: Callable[..., str], largest: int
) -> None:
    """Of message.max.bytes and the topic's limit the lower one counts."""
    name = limited_topic(kafka, topic() + "-limit", largest)
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    job = kit.new_job()
    writer = sink.create_selective_writer(kit.attempt(job))
    refused = writer.write_accepted(rows([b"1", b"2" * 101, b"3" * 1_048_576]))
    assert [row.index for row in refused] == ([1, 2] if largest == 200 else [2])
    commit(sink, job, writer)

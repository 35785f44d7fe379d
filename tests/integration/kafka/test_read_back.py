"""A topic is read back as committed readers see it, each row with the transaction that wrote it.

How: a real broker; transactions committed and aborted, in every compression, between them rows of a
producer without transactions; the ledger's tally counts the rows on their way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from seamark.checkpoint.row_hash import NO_ROWS, row_hashes, sums
from seamark.checkpoint.sink_epoch import Tally
from seamark.contracts.read_back import ReadBack
from seamark.dev.kafka import LocalKafka
from seamark.sinks.kafka import KafkaSink, read_back
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]


def found(sink: KafkaSink, job: str, batch: pa.RecordBatch, committables: list[Any]) -> list[Any]:
    return list(sink.read_back(ReadBack(kit.driver(job), batch.schema, committables)))


def added_up(rows: list[Any], writer: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for one in rows:
        if one.writers == (writer,):
            result[one.target] = result.get(one.target, NO_ROWS) + sums(row_hashes(one.rows))
    return result


# 1: each record batch is a fetch of its own, so an abort's marker comes apart from its rows.
@pytest.mark.parametrize("pieces", [20_000, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_row_has_its_transaction(
    kafka: LocalKafka, topic: Topic, codec: str, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_back, "FETCH_BYTES", pieces)
    name, job = topic(3), kit.new_job()
    sink = kit.sink_on(
        kafka.bootstrap_servers, name, producer_options={"compression.type": codec}
    )  # fmt: skip
    plain = Producer({"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec})
    committables, tallies = [], []
    with kit.committing(sink, kit.driver(job)) as committer:
        for epoch in range(5):
            writer = sink.create_writer(kit.attempt(job, epoch=epoch, settled=epoch - 1))
            tally = Tally(writer)
            for start in range(0, 3000, 1000):
                batch = kit.numbers(range(10_000 * epoch + start, 10_000 * epoch + start + 1000))
                writer.write(batch)
                tally.add(batch)
            prepared = writer.prepare_commit()
            if epoch == 2:
                kit.until_proved(committer.abort, prepared)
                continue
            kit.until_proved(committer.commit, prepared)
            committables += prepared
            tallies.append(tally.close())
            plain.produce(name, b"-1", b"foreign", partition=epoch % 3)
            plain.flush(30)
    kit.wait_for_markers(kafka.bootstrap_servers)
    rows = found(sink, job, batch, committables)
    assert [added_up(rows, number) for number in range(4)] == tallies
    assert [len(tally) for tally in tallies] == [3] * 4, "a sum for each partition"
    foreign = [one for one in rows if one.writers == ()]
    assert sum(len(one.rows) for one in foreign) == 4
    for one in rows:
        assert len(one.positions) == len(one.rows)
    offsets = Counter((one.target, at) for one in rows for at in one.positions.tolist())
    assert max(offsets.values()) == 1


def test_keys_headers_topics_and_partitions_in_the_rows(kafka: LocalKafka, topic: Topic) -> None:
    names, job = [topic(2), topic(2)], kit.new_job()
    sink = kit.sink_on(kafka.bootstrap_servers, None, transactional_id_prefix=names[0])
    entry = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", None, b""], pa.binary()),
            "value": pa.array([b"", b"x" * 9000, None], pa.binary()),
            "topic": pa.array([names[0], names[1], names[0]]),
            "partition": pa.array([1, None, 0], pa.int32()),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], [], None],
                pa.list_(entry),
            ),
        }
    )
    writer = sink.create_writer(kit.attempt(job))
    tally = Tally(writer)
    writer.write(batch)
    tally.add(batch)
    prepared = list(writer.prepare_commit())
    with kit.committing(sink, kit.driver(job)) as committer:
        kit.until_proved(committer.commit, prepared)
    kit.wait_for_markers(kafka.bootstrap_servers)
    rows = found(sink, job, batch, prepared)
    assert {one.writers for one in rows} == {(0,)}
    assert tally.close() == {"": sum((sums(row_hashes(one.rows)) for one in rows), NO_ROWS)}


def test_rows_deleted_by_retention_are_passed_over(kafka: LocalKafka, topic: Topic) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name, job = topic(1), kit.new_job()
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    committables = []
    with kit.committing(sink, kit.driver(job)) as committer:
        for epoch in range(2):
            context = kit.attempt(job, epoch=epoch, settled=epoch - 1)
            committables.append(kit.prepare(sink, context, range(10)))
            kit.until_proved(committer.commit, committables[-1:])
    kit.wait_for_markers(kafka.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(name, 0, 11)]).values():
        done.result(300)
    rows = found(sink, job, kit.numbers([1]), committables)
    assert [(one.writers, len(one.rows)) for one in rows] == [((1,), 10)]

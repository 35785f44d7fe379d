"""The rows on arrival: the bytes, the order, the partitions, and every way to refuse a row.

How: batches through real writers, then a read_committed reader. The fast path (whole columns to
librdkafka) and the general one (row by row) write the same batches and must agree in every byte.
"""

from __future__ import annotations

import contextlib
import random
import time
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, KafkaAdminClient

from seamark.dev.kafka import LocalKafka
from seamark.model.errors import WriteRefusedError
from seamark.sinks.kafka import KafkaSink, native_library
from seamark.sinks.kafka.native_producer import NativeProducer
from seamark.sinks.kafka.row_producer import RowProducer
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]
Row = tuple[int, bytes | None, bytes | None]


def write_all(sink: KafkaSink, job: str, *batches: pa.RecordBatch, epoch: int = 0) -> Any:
    """Write, commit, and return the committable."""
    writer = sink.create_writer(kit.attempt(job, epoch=epoch, settled=epoch - 1))
    for batch in batches:
        writer.write(batch)
    (committable,) = writer.prepare_commit()
    with kit.committing(sink, kit.driver(job)) as committer:
        kit.until_proved(committer.commit, [committable])
    return committable


def read(kafka: LocalKafka, topic: str) -> list[Row]:
    return [
        (message.partition(), message.key(), message.value())
        for message in kit.records(kafka.bootstrap_servers, topic)
    ]


def configure(kafka: LocalKafka, topic: str, settings: dict[str, object]) -> None:
    """Set a topic's settings, and no others."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.alter_configs([ConfigResource("TOPIC", topic, settings)])


def batch(rows: list[tuple[bytes | None, bytes | None]], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "key": pa.array([key for key, _ in rows], kind),
            "value": pa.array([value for _, value in rows], kind),
        }
    )


def odd_batches() -> list[pa.RecordBatch]:
    """Slices, nulls, empties, all-empty columns, wide offsets, long values."""
    shuffle = random.Random(5)
    rows: list[tuple[bytes | None, bytes | None]] = [
        (
            None if i % 11 == 0 else shuffle.randbytes(shuffle.randrange(0, 40)),
            None if i % 7 == 0 else shuffle.randbytes(shuffle.randrange(0, 300)),
        )
        for i in range(2000)
    ]
    empties: list[tuple[bytes | None, bytes | None]] = [(b"", b""), (b"", None), (b"k", b"")]
    return [
        batch(rows, pa.binary()).slice(3, 1500),
        batch(rows, pa.large_binary()).slice(1999),
        batch(empties, pa.binary()),
        batch([(b"", b"")] * 3, pa.large_binary()),
        batch([(b"long", b"x" * 600_000), (b"k" * 500, b"after")], pa.binary()),
        batch([(b"zero", b"%d" % i) for i in range(10)], pa.binary()).slice(0, 0),
        batch([(b"again", b"%d" % i) for i in range(2000)], pa.binary()).slice(500, 1000),
    ]


@pytest.fixture
def by_row(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function to make direct calls of librdkafka in this process fail."""
    return lambda: monkeypatch.setattr(native_library, "load", lambda: None)


def test_the_fast_path_is_what_runs_here() -> None:
    assert native_library.load() is not None


@pytest.mark.parametrize("partitions", [1, 5])
def test_both_paths_write_the_same_bytes_to_the_same_partitions(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], partitions: int
) -> None:
    expected = [row for b in odd_batches() for row in zip(*b.to_pydict().values(), strict=True)]
    results, committables = [], []
    for kind in (NativeProducer, RowProducer):
        if kind is RowProducer:
            by_row()
        name, job = topic(partitions), kit.new_job()
        committable = write_all(kit.sink_on(kafka.bootstrap_servers, name), job, *odd_batches())
        found = read(kafka, name)
        assert sorted((k, v) for _, k, v in found if k is not None and v is not None) == sorted(
            (k, v) for k, v in expected if k is not None and v is not None
        )
        assert len(found) == len(expected)
        for key in {k for k, _ in expected if k is not None}:
            # All of a key in one partition, and in the order of writing.
            assert len({p for p, k, _ in found if k == key}) == 1
            assert [v for _, k, v in found if k == key] == [v for k, v in expected if k == key]
        counts = {p: sum(1 for q, _, _ in found if q == p) for p in {p for p, _, _ in found}}
        assert committable.rows == {name: counts}
        results.append([row for row in found if row[1] is not None])
        committables.append(committable)
    assert results[0] == results[1]


def test_a_tombstone_is_null_and_an_empty_value_is_not(kafka: LocalKafka, topic: Topic) -> None:
    name = topic()
    rows: list[tuple[bytes | None, bytes | None]] = [
        (b"a", None), (b"a", b""), (None, None), (b"", b"x"),
    ]  # fmt: skip
    write_all(kit.sink_on(kafka.bootstrap_servers, name), kit.new_job(), batch(rows, pa.binary()))
    assert [(k, v) for _, k, v in read(kafka, name)] == rows


def test_a_full_queue_keeps_the_order(kafka: LocalKafka, topic: Topic) -> None:
    name = topic(3)
    options = {"queue.buffering.max.messages": 500, "linger.ms": 0}
    sink = kit.sink_on(kafka.bootstrap_servers, name, producer_options=options)
    values = range(30_000)
    write_all(
        sink, kit.new_job(), *(kit.numbers(values[i : i + 7000]) for i in range(0, 30_000, 7000))
    )
    found = read(kafka, name)
    assert sorted(int(v or b"") for _, _, v in found) == list(values)
    for key in {k for _, k, _ in found}:
        of_key = [int(v or b"") for _, k, v in found if k == key]
        assert of_key == sorted(of_key)


def test_the_partition_column_wins_over_the_key(kafka: LocalKafka, topic: Topic) -> None:
    name = topic(4)
    with_partition = kit.numbers(range(8)).append_column(
        "partition", pa.array([3, 3, None, 0, 1, 2, 3, None], pa.int32())
    )
    write_all(kit.sink_on(kafka.bootstrap_servers, name), kit.new_job(), with_partition)
    where = {int(v or b""): p for p, _, v in read(kafka, name)}
    assert [where[i] for i in (0, 1, 3, 4, 5, 6)] == [3, 3, 0, 1, 2, 3]
    by_key = topic(4)
    write_all(kit.sink_on(kafka.bootstrap_servers, by_key), kit.new_job(), kit.numbers(range(8)))
    where_by_key = {int(v or b""): p for p, _, v in read(kafka, by_key)}
    assert (where[2], where[7]) == (where_by_key[2], where_by_key[7])


@pytest.mark.parametrize("general", [False, True])
def test_a_partition_made_while_the_producer_is_open_is_found(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool
) -> None:
    """As by Java's producer: a query that keeps the partitions of a topic goes on as both grow."""
    if general:
        by_row()
    name, job = topic(1), kit.new_job()
    rows = kit.numbers(range(2))
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    writer = sink.create_writer(kit.attempt(job))
    writer.write(rows.append_column("partition", pa.array([0, None], pa.int32())))
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.create_partitions({name: 3})
        while len(admin.describe_topics([name])[0]["partitions"]) < 3:
            time.sleep(0.02)
    writer.write(rows.append_column("partition", pa.array([2, 1], pa.int32())))
    (committable,) = writer.prepare_commit()
    with kit.committing(sink, kit.driver(job)) as committer:
        kit.until_proved(committer.commit, [committable])
    assert sorted(p for p, _, _ in read(kafka, name)) == [0, 0, 1, 2]


def test_rows_with_headers_and_topics_of_their_own(kafka: LocalKafka, topic: Topic) -> None:
    one, two = topic(), topic(2)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = kit.numbers(range(4))
    rows = rows.append_column("topic", pa.array([one, two, one, two]))
    rows = rows.append_column(
        "headers",
        pa.array(
            [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, [], None], kind
        ),
    )
    sink = kit.sink_on(kafka.bootstrap_servers, None, transactional_id_prefix=f"p-{one}")
    committable = write_all(sink, kit.new_job(), rows)
    assert {t: sum(c.values()) for t, c in committable.rows.items()} == {one: 2, two: 2}
    first, third = kit.records(kafka.bootstrap_servers, one)
    assert (first.value(), third.value()) == (b"0", b"2")
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert not third.headers()
    with pytest.raises(WriteRefusedError, match="`topic` is null"):
        write_all(
            sink, kit.new_job(), rows.set_column(2, "topic", pa.array([None] * 4, pa.string()))
        )


def test_another_partitioner_and_very_long_keys_are_left_to_librdkafka(
    kafka: LocalKafka, topic: Topic
) -> None:
    name, other, keys = topic(5), topic(5), [b"%d" % i * (200 if i % 2 else 1) for i in range(200)]
    rows: list[tuple[bytes | None, bytes | None]] = [(key, key) for key in keys]
    crc = {"partitioner": "consistent"}
    write_all(
        kit.sink_on(kafka.bootstrap_servers, name, producer_options=crc),
        kit.new_job(), batch(rows, pa.binary()),
    )  # fmt: skip
    write_all(kit.sink_on(kafka.bootstrap_servers, other), kit.new_job(), batch(rows, pa.binary()))
    by_crc, by_murmur2 = read(kafka, name), read(kafka, other)
    assert {p for p, k, _ in by_crc if k == b"7" * 200} == {zlib.crc32(b"7" * 200) % 5}
    assert sorted(k or b"" for _, k, _ in by_crc) == sorted(keys)
    assert sorted(k or b"" for _, k, _ in by_murmur2) == sorted(keys)
    # Short keys go through numpy in a batch of their own, to where librdkafka put them above.
    short = [(key, key) for key in keys if len(key) < 4]
    again = topic(5)
    sink = kit.sink_on(kafka.bootstrap_servers, again)
    write_all(sink, kit.new_job(), batch([*short], pa.binary()))
    assert set(read(kafka, again)) <= set(by_murmur2)


def test_string_columns_are_taken_as_utf8(kafka: LocalKafka, topic: Topic) -> None:
    name = topic()
    text = pa.record_batch({"key": ["ü"], "value": ["größer"]})
    write_all(kit.sink_on(kafka.bootstrap_servers, name), kit.new_job(), text)
    assert read(kafka, name) == [(0, "ü".encode(), "größer".encode())]


@pytest.mark.parametrize("general", [False, True])
def test_the_largest_row_of_javas_producer_is_written(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool
) -> None:
    """By Kafka's defaults: `max.request.size` is 1,048,576, and of the batch 90 bytes go to the
    record and the batch themselves."""
    if general:
        by_row()
    name = topic()
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    write_all(sink, kit.new_job(), batch([(b"key", b"x" * 1_048_480)], pa.binary()))
    assert [len(value or b"") for _, _, value in read(kafka, name)] == [1_048_480]


@pytest.mark.parametrize("general", [False, True])
def test_the_largest_row_allowed_fits_into_the_queue(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool
) -> None:
    if general:
        by_row()
    name, limit = topic(), {"message.max.bytes": 72_000_000}
    configure(kafka, name, {"max.message.bytes": 72_000_000})
    options = {**limit, "message.timeout.ms": 60_000}
    sink, job = kit.sink_on(kafka.bootstrap_servers, name, producer_options=options), kit.new_job()
    write_all(sink, job, batch([(b"key", b"x" * 70_000_000)], pa.binary()))
    assert [len(value or b"") for _, _, value in read(kafka, name)] == [70_000_000]


@pytest.mark.parametrize("general", [False, True])
def test_small_rows_into_a_topic_of_small_batches(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool
) -> None:
    """Java's producer divides a batch that the broker refuses for its size; librdkafka does not."""
    if general:
        by_row()
    name, job = topic(), kit.new_job()
    configure(kafka, name, {"max.message.bytes": 10_000})
    sink = kit.sink_on(kafka.bootstrap_servers, name, producer_options={"compression.type": "none"})
    with kit.committing(sink, kit.driver(job), preflight=True) as committer:
        writer = sink.create_writer(kit.attempt(job))
        writer.write(batch([(b"key", b"x" * 500)] * 2_000, pa.binary()))
        kit.until_proved(committer.commit, writer.prepare_commit())
    assert len(read(kafka, name)) == 2_000
    writer = sink.create_writer(kit.attempt(job, epoch=1))
    with pytest.raises(WriteRefusedError, match=r"max\.message\.bytes of the topic"):
        writer.write(batch([(b"key", b"x" * 20_000)], pa.binary()))
        writer.prepare_commit()
    writer.abort()
    kit.abort_all(sink, job)


def test_a_moment_that_the_topic_does_not_take(kafka: LocalKafka, topic: Topic) -> None:
    """As where a machine's clock is hours ahead of the broker's."""
    name, job = topic(), kit.new_job()
    never = dict.fromkeys(("before", "after"), 0)
    configure(kafka, name, {f"message.timestamp.{w}.max.ms": most for w, most in never.items()})
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    writer = sink.create_writer(kit.attempt(job))
    with pytest.raises(WriteRefusedError, match="clock of this machine"):
        writer.write(kit.numbers(range(5)))
        writer.prepare_commit()
    writer.abort()
    kit.abort_all(sink, job)


@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize(
    ("bad", "options", "parts"),
    [
        ({"value": b"x" * 2_000_000}, {}, ["too large", "message.max.bytes"]),
        # Allowed here, refused by the broker: comes back as a failed delivery.
        (
            {"value": b"x" * 2_000_000},
            {"message.max.bytes": 4_000_000},
            ["too large", "max.message.bytes"],
        ),
        ({"partition": 9}, {}, ["partition"]),
        ({"partition": -3}, {}, ["`partition` is -3"]),
    ],
)
def test_a_refused_row_fails_the_attempt_and_names_the_reason(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool,
    bad: dict[str, Any], options: dict[str, Any], parts: list[str],
) -> None:  # fmt: skip
    if general:
        by_row()
    name, job = topic(2), kit.new_job()
    sink = kit.sink_on(kafka.bootstrap_servers, name, producer_options=options)
    rows = kit.numbers(range(100)).to_pylist()
    for row in rows:
        row["partition"] = None
    rows[50] |= bad
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())])
    writer = sink.create_writer(kit.attempt(job))
    with pytest.raises(WriteRefusedError) as caught:
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        writer.prepare_commit()
    writer.abort()
    for part in [f"sink `{kit.UID}`", name, *parts]:
        assert part in str(caught.value)
    kit.abort_all(sink, job)
    assert read(kafka, name) == []
    # The next attempt of the same worker is none the worse.
    assert write_all(sink, job, kit.numbers(range(5)), epoch=1)
    assert kit.visible(kafka.bootstrap_servers, name) == list(range(5))


@pytest.mark.parametrize("general", [False, True])
def test_a_row_without_a_key_for_a_compacted_topic_says_so(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool
) -> None:
    if general:
        by_row()
    name, job = topic(), kit.new_job()
    configure(kafka, name, {"cleanup.policy": "compact"})
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    writer = sink.create_writer(kit.attempt(job))
    with pytest.raises(WriteRefusedError, match=r"compact.*without a key"):
        writer.write(batch([(None, b"1")], pa.binary()))
        writer.prepare_commit()
    writer.abort()
    kit.abort_all(sink, job)


@pytest.mark.parametrize("general", [False, True])
def test_rows_after_a_refused_one_name_its_reason(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool
) -> None:
    if general:
        by_row()
    name, job = topic(1), kit.new_job()
    larger = {"message.max.bytes": 4_000_000}
    sink = kit.sink_on(kafka.bootstrap_servers, name, producer_options=larger)
    writer = sink.create_writer(kit.attempt(job))
    writer.write(batch([(b"k", b"x" * 2_000_000)], pa.binary()))
    # The broker's refusal comes in meanwhile, and librdkafka takes no further row.
    time.sleep(1)
    with pytest.raises(WriteRefusedError) as caught:
        writer.write(kit.numbers(range(5)))
        writer.prepare_commit()
    writer.abort()
    kit.abort_all(sink, job)
    assert "too large" in str(caught.value)
    assert "max.message.bytes" in str(caught.value)


@pytest.mark.parametrize("general", [False, True])
def test_a_topic_deleted_while_a_task_writes_is_a_loud_failure(
    kafka: LocalKafka, topic: Topic, by_row: Callable[[], None], general: bool
) -> None:
    from confluent_kafka.admin import AdminClient

    if general:
        by_row()
    name, job = topic(2), kit.new_job()
    options = {"message.timeout.ms": 4000, "topic.metadata.propagation.max.ms": 1000}
    sink = kit.sink_on(kafka.bootstrap_servers, name, producer_options=options)
    writer = sink.create_writer(kit.attempt(job))
    writer.write(kit.numbers(range(100)))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([name])[name].result(300)
    while name in admin.list_topics(timeout=30).topics:  # until then the broker takes rows
        time.sleep(0.02)
    with pytest.raises(WriteRefusedError, match=f"sink `{kit.UID}`.*{name}"):
        for i in range(100, 4000, 100):
            writer.write(kit.numbers(range(i, i + 100)))
        writer.prepare_commit()
    writer.abort()

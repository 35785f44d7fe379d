"""Warm producers and the life of a transactional id, in this process as in a Python worker."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import WriteRefusedError
from seamark.sinks.kafka import KafkaSink, producer_pool
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]


@pytest.fixture
def sink(kafka: LocalKafka, topic: Topic) -> KafkaSink:
    return kit.sink_on(kafka.bootstrap_servers, topic(2))


def pools(job: str) -> list[producer_pool.ProducerPool]:
    from seamark.sinks.kafka.transactional_id import owner

    return [p for key, p in producer_pool._pools.items() if key.owner == owner(job, kit.UID)]


def wait_until_warm(job: str) -> None:
    deadline = time.monotonic() + 60
    while not any(pool._ready for pool in pools(job)):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_id_waits_for_its_epoch_to_be_settled(sink: KafkaSink) -> None:
    job = kit.new_job()
    ids = []
    with kit.committing(sink, kit.driver(job)) as committer:
        for epoch in range(4):  # nothing is settled
            one = kit.prepare(sink, kit.attempt(job, epoch=epoch), range(3))
            ids.append(one.handle)
            assert kit.until_proved(committer.commit, [one]) == [CommitOutcome.COMMITTED]
            wait_until_warm(job)
        assert len(set(ids)) == 4
        for epoch in range(4, 12):  # all but the epoch before
            one = kit.prepare(sink, kit.attempt(job, epoch=epoch, settled=epoch - 2), range(3))
            assert one.handle not in ids[-2:]
            ids.append(one.handle)
            assert kit.until_proved(committer.commit, [one]) == [CommitOutcome.COMMITTED]
            wait_until_warm(job)
    assert len(set(ids)) <= 6, "ids go round"


def test_an_attempt_that_failed_keeps_its_id_until_its_epoch_is_settled(sink: KafkaSink) -> None:
    job = kit.new_job()
    failed = sink.create_writer(kit.attempt(job, epoch=5, settled=4))
    failed.write(kit.numbers(range(3)))
    assert failed._lease is not None
    lost_id = failed._lease.transactional_id
    failed.abort()
    wait_until_warm(job)
    retries = [kit.prepare(sink, kit.attempt(job, epoch=5, settled=4), [n]) for n in range(3)]
    assert lost_id not in {one.handle for one in retries}
    with kit.committing(sink, kit.driver(job)) as committer:
        kit.until_proved(committer.commit, retries)
    wait_until_warm(job)
    later = [kit.prepare(sink, kit.attempt(job, epoch=6, settled=5), [n]) for n in range(3)]
    assert lost_id in {one.handle for one in later}
    kit.abort_all(sink, job)


def test_an_id_near_the_end_of_its_epochs_is_retired(
    sink: KafkaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_pool, "LAST_EPOCH_TO_USE", 5)
    job = kit.new_job()
    epochs: dict[str, list[int]] = {}
    with kit.committing(sink, kit.driver(job)) as committer:
        for epoch in range(16):
            one = kit.prepare(sink, kit.attempt(job, epoch=epoch, settled=epoch - 1), [epoch])
            epochs.setdefault(one.handle, []).append(one.producer_epoch)
            assert kit.until_proved(committer.commit, [one]) == [CommitOutcome.COMMITTED]
            wait_until_warm(job)
    assert len(epochs) > 2
    for used in epochs.values():
        assert used == sorted(used)
        assert len(used) == len(set(used)), "one transaction per epoch"
        assert all(epoch < 5 for epoch in used[:-1])


def test_a_newer_generation_closes_the_pool_of_an_older_one(sink: KafkaSink) -> None:
    job = kit.new_job()
    kit.prepare(sink, kit.attempt(job, generation=1), [1])
    wait_until_warm(job)
    (old,) = pools(job)
    kit.prepare(sink, kit.attempt(job, generation=2), [2])
    assert old not in pools(job)
    assert old._closed
    assert not old._ready
    kit.abort_all(sink, job)


def test_a_producer_that_nobody_takes_is_closed_in_time(
    sink: KafkaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = kit.new_job()
    kit.prepare(sink, kit.attempt(job), [1])
    wait_until_warm(job)
    (pool,) = pools(job)
    monkeypatch.setattr(producer_pool, "_OLDEST_S", 0.0)
    deadline = time.monotonic() + 60
    while pool._ready:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kit.abort_all(sink, job)


def test_a_small_epoch_on_a_warm_producer_is_quick(sink: KafkaSink) -> None:
    job = kit.new_job()
    rows, took = kit.numbers(range(2500)), []
    with kit.committing(sink, kit.driver(job)) as committer:
        for epoch in range(15):
            writer = sink.create_writer(kit.attempt(job, epoch=epoch, settled=epoch - 1))
            started = time.perf_counter()
            writer.write(rows)
            (one,) = writer.prepare_commit()
            took.append(time.perf_counter() - started)
            kit.until_proved(committer.commit, [one])
            wait_until_warm(job)
    # 10 to 15 ms on a quiet machine; a cold producer takes ten times as long.
    assert statistics.median(took[1:]) < 0.5, took


def test_at_least_once_shows_rows_at_the_flush_and_keeps_its_producer(
    kafka: LocalKafka, topic: Topic
) -> None:
    name, job = topic(2), kit.new_job()
    sink = KafkaSink(kafka.bootstrap_servers, topic=name, delivery_guarantee="at-least-once")
    producers = []
    for epoch in range(3):
        writer = sink.create_writer(kit.attempt(job, epoch=epoch))
        writer.write(kit.numbers(range(epoch * 10, epoch * 10 + 10)))
        assert writer._lease is not None
        producers.append(writer._lease.producer)
        assert writer.prepare_commit() == []
        assert kit.visible(kafka.bootstrap_servers, name) == list(range(epoch * 10 + 10))
    assert len({id(producer) for producer in producers}) == 1

    failed = sink.create_writer(kit.attempt(job, epoch=3))
    with pytest.raises(WriteRefusedError):
        failed.write(kit.numbers([1]).set_column(1, "value", pa.array([b"x" * 2_000_000])))
    failed.abort()
    after = sink.create_writer(kit.attempt(job, epoch=3))
    after.write(kit.numbers(range(30, 40)))
    assert after._lease is not None
    assert after._lease.producer is not producers[0], "one that has failed is not used again"
    assert after.prepare_commit() == []
    assert kit.visible(kafka.bootstrap_servers, name) == list(range(40))
    with kit.committing(sink, kit.driver(job), preflight=True) as committer:
        assert list(committer.list_lingering()) == []

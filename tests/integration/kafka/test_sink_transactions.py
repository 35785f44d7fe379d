"""Flushed transactions under death: of the writer, of the broker, of time; and their readers' view.

How: a child process writes and is killed with SIGKILL where it matters; a test with a killed broker
has one of its own. Nothing is simulated.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome, WriterContext
from seamark.dev.kafka import LocalKafka
from seamark.model.findings import FindingCode
from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.verify.conformance.steps import in_child, ipc
from tests.chaos.driver import wait_until
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]
DONE = {CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED}


def in_killed_child(
    sink: KafkaSink, context: WriterContext, rows: int, failpoint: str = ""
) -> list[KafkaCommittable]:
    """Write in a process that dies by SIGKILL, after the flush or at the failpoint."""
    data = ipc(kit.numbers(range(rows)))
    status, dumped = in_child(sink, "write", context, data, die=True, failpoint=failpoint)
    assert status == -signal.SIGKILL
    return [sink.load(one) for one in dumped or ()]


@pytest.fixture
def own_kafka() -> Iterator[LocalKafka]:
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    with LocalKafka(overrides=quick) as cluster:
        yield cluster


def create(servers: str, name: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(300)
    return name


def test_flushed_rows_survive_the_death_of_writer_and_broker_and_wait_for_a_commit(
    own_kafka: LocalKafka,
) -> None:
    servers = own_kafka.bootstrap_servers
    job, name = kit.new_job(), create(servers, "orders")
    sink = kit.sink_on(servers, name)
    (committable,) = in_killed_child(sink, kit.attempt(job), 1000)
    assert kit.visible(servers, name) == []
    with kit.committing(sink, kit.driver(job), preflight=True) as committer:
        own_kafka.kill(1)
        started = time.monotonic()
        assert committer.commit([committable]) == [CommitOutcome.RETRY]
        assert committer.abort([committable]) == [AbortOutcome.RETRY]
        assert time.monotonic() - started < 60, "a system that is away answers within seconds"
        own_kafka.restart(1)
        assert set(kit.until_proved(committer.commit, [committable])) <= DONE
    assert kit.visible(servers, name) == list(range(1000))


def test_a_broker_that_accepts_and_never_answers_is_asked_again(own_kafka: LocalKafka) -> None:
    """The coordinator is known, and its line open; then a driver that has no line yet."""
    servers = own_kafka.bootstrap_servers
    job, name = kit.new_job(), create(servers, "orders")
    sink = kit.sink_on(servers, name)
    kept, dropped = (kit.prepare(sink, kit.attempt(job, epoch=e), range(10)) for e in range(2))
    with kit.committing(sink, kit.driver(job), preflight=True) as first:
        assert len(list(first.list_lingering())) == 2
        with kit.committing(sink, kit.driver(job)) as second:
            own_kafka.pause(1)
            try:
                threads = threading.active_count()
                for committer in (first, second, second):
                    assert committer.commit([kept, kept]) == [CommitOutcome.RETRY] * 2
                    assert committer.abort([dropped]) == [AbortOutcome.RETRY]
                assert threading.active_count() <= threads, "a thread stays of each try"
            finally:
                own_kafka.resume(1)
            assert set(kit.until_proved(second.commit, [kept])) <= DONE
            assert kit.until_proved(first.abort, [dropped]) == [AbortOutcome.ABORTED]
    # A broker that was silent for long may lead its partitions anew: until it has read its log of
    # transactions, it lists none of those that it has yet to mark.
    wait_until("the marks", lambda: kit.visible(servers, name) == list(range(10)), 60)


def test_a_broker_killed_while_a_task_writes_costs_nothing_but_time(own_kafka: LocalKafka) -> None:
    servers = own_kafka.bootstrap_servers
    job, name = kit.new_job(), create(servers, "orders")
    sink = kit.sink_on(servers, name)
    writer = sink.create_writer(kit.attempt(job))
    writer.write(kit.numbers(range(500)))
    own_kafka.kill(1)
    writer.write(kit.numbers(range(500, 1000)))
    own_kafka.restart(1)
    (committable,) = writer.prepare_commit()
    with kit.committing(sink, kit.driver(job)) as committer:
        assert set(kit.until_proved(committer.commit, [committable])) <= DONE
    assert kit.visible(servers, name) == list(range(1000))


def test_a_broker_that_is_away_fails_the_attempt_by_its_deadline(own_kafka: LocalKafka) -> None:
    servers = own_kafka.bootstrap_servers
    job, name = kit.new_job(), create(servers, "orders")
    sink = kit.sink_on(servers, name, producer_options={"message.timeout.ms": 3000})
    writer = sink.create_writer(kit.attempt(job))
    writer.write(kit.numbers(range(500)))
    own_kafka.kill(1)
    started = time.monotonic()
    with pytest.raises(Exception, match=f"sink `{kit.UID}`"):
        writer.write(kit.numbers(range(500, 1000)))
        writer.prepare_commit()
    assert time.monotonic() - started < 60
    started = time.monotonic()
    writer.abort()
    assert time.monotonic() - started < 60, "abort does not hang"


@pytest.mark.parametrize("failpoint", ["transaction-begun", "transaction-flushed"])
def test_a_task_killed_with_an_open_transaction_is_found_and_aborted(
    kafka: LocalKafka, topic: Topic, failpoint: str
) -> None:
    job, name = kit.new_job(), topic(2)
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    assert in_killed_child(sink, kit.attempt(job, generation=3), 5000, failpoint) == []
    assert kit.records(kafka.bootstrap_servers, name, isolation="read_uncommitted")
    with kit.committing(sink, kit.driver(job, 4)) as committer:
        (left,) = committer.list_lingering()
        assert left.generation == 3
        assert kit.until_proved(committer.abort, [left.committable]) == [AbortOutcome.ABORTED]
        assert list(committer.list_lingering()) == []
    assert kit.visible(kafka.bootstrap_servers, name) == []


def test_an_open_transaction_hides_later_rows_until_it_ends(
    kafka: LocalKafka, topic: Topic
) -> None:
    job, name = kit.new_job(), topic()
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    first = kit.prepare(sink, kit.attempt(job, epoch=0), range(10))
    second = kit.prepare(sink, kit.attempt(job, epoch=1), range(10, 20))
    with kit.committing(sink, kit.driver(job)) as committer:
        assert kit.until_proved(committer.commit, [second]) == [CommitOutcome.COMMITTED]
        assert kit.visible(kafka.bootstrap_servers, name) == []
        assert kit.until_proved(committer.abort, [first]) == [AbortOutcome.ABORTED]
    assert kit.visible(kafka.bootstrap_servers, name) == list(range(10, 20))


def test_the_groups_that_wait_are_named(kafka: LocalKafka, topic: Topic) -> None:
    job, name = kit.new_job(), topic()
    servers = kafka.bootstrap_servers
    sink = kit.sink_on(servers, name)
    with kit.committing(sink, kit.driver(job)) as committer:
        visible = kit.prepare(sink, kit.attempt(job, epoch=0), range(10))
        assert kit.until_proved(committer.commit, [visible]) == [CommitOutcome.COMMITTED]
        kit.wait_for_markers(servers)
        kit.prepare(sink, kit.attempt(job, epoch=1), range(10, 30))
        stable = 11  # ten rows and their marker
        for group, offset in {"waits": stable, "is-late": 4, "reads-all": stable + 20}.items():
            kit.commit_offset(servers, f"{group}-{name}", name, offset)
        (left,) = [found.committable for found in committer.list_lingering()]
        ((held,),) = [facts.held_up for facts in committer.describe_open([left])]
        assert (held.place, held.rows, held.first) == (f"{name}-0", 20, True)
        assert held.groups == {f"is-late-{name}": 7, f"waits-{name}": 0}

        (found,) = readers_of_uncommitted(sink, job)
        assert f"'reads-all-{name}'" in found
        assert "offset 31 of partition 0, whose last stable offset is 11" in found
        assert kit.until_proved(committer.abort, [left]) == [AbortOutcome.ABORTED]
        kit.wait_for_markers(servers)
        assert readers_of_uncommitted(sink, job) == []


def readers_of_uncommitted(sink: KafkaSink, job: str) -> list[str]:
    found = sink.inspect(kit.driver(job, generation=0))
    return [one.found for one in found if one.code is FindingCode.SK003]


def test_a_transaction_that_timed_out_is_lost_and_said_so(kafka: LocalKafka, topic: Topic) -> None:
    job, name = kit.new_job(), topic(2)
    sink = kit.sink_on(kafka.bootstrap_servers, name, transaction_timeout="2s")
    committable = kit.prepare(sink, kit.attempt(job), range(100))
    with kit.committing(sink, kit.driver(job)) as committer:
        wait_until("it to time out", lambda: list(committer.list_lingering()) == [], 60)
        assert kit.until_proved(committer.commit, [committable]) == [CommitOutcome.LOST]
        assert kit.until_proved(committer.abort, [committable]) == [AbortOutcome.ABORTED]
    assert kit.visible(kafka.bootstrap_servers, name) == []


def test_lingering_lists_exactly_this_jobs_and_sinks_open_transactions(
    kafka: LocalKafka, topic: Topic
) -> None:
    from confluent_kafka import Producer

    servers, name = kafka.bootstrap_servers, topic(2)
    job, other = kit.new_job(), kit.new_job()
    sink = kit.sink_on(servers, name)
    renamed = kit.sink_on(servers, name, transactional_id_prefix="earlier-prefix")
    mine = {
        kit.prepare(sink, kit.attempt(job, generation=1), range(5)).handle: 1,
        kit.prepare(sink, kit.attempt(job, generation=12), range(5)).handle: 12,
        kit.prepare(renamed, kit.attempt(job, generation=2), range(5)).handle: 2,
    }
    kit.prepare(sink, kit.attempt(other), range(5))
    kit.prepare(sink, kit.attempt(job, uid="elsewhere"), range(5))
    stranger = Producer({"bootstrap.servers": servers, "transactional.id": f"test-{name}-x-g1-y-1"})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(name, b"1")
    stranger.flush(30)
    with kit.committing(sink, kit.driver(job, 13)) as committer:
        committed = kit.prepare(sink, kit.attempt(job, generation=12, epoch=5), range(5))
        kit.until_proved(committer.commit, [committed])
        found = {one.committable.handle: one.generation for one in committer.list_lingering()}
        assert found == mine
    for context_job, uid in ((job, kit.UID), (other, kit.UID), (job, "elsewhere")):
        kit.abort_all(sink, context_job, uid)
    stranger.abort_transaction(30)


@pytest.mark.parametrize("topics", [False, True], ids=["one topic", "a topic for each row"])
def test_attempts_that_give_up_as_the_broker_answers_leave_nothing_open(
    kafka: LocalKafka, topic: Topic, topics: bool
) -> None:
    """The answer to the registration of the partition arrives before, within or after the abort."""
    job, name = kit.new_job(), topic()
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    rows = kit.numbers(range(500))
    if topics:
        rows = rows.append_column("topic", pa.array([name] * 500))
    for number in range(60):
        writer = sink.create_writer(kit.attempt(job, epoch=number))
        writer.write(rows)
        time.sleep(number % 10 / 2000)
        writer.abort()
    with kit.committing(sink, kit.driver(job)) as committer:
        assert list(committer.list_lingering()) == []


def test_an_attempt_that_gives_up_frees_the_readers_at_once(
    kafka: LocalKafka, topic: Topic
) -> None:
    job, name = kit.new_job(), topic()
    sink = kit.sink_on(kafka.bootstrap_servers, name)
    writer = sink.create_writer(kit.attempt(job))
    for start in range(0, 5000, 1000):
        writer.write(kit.numbers(range(start, start + 1000)))
    writer.abort()
    writer.abort()
    with kit.committing(sink, kit.driver(job)) as committer:
        assert list(committer.list_lingering()) == []
        later = kit.prepare(sink, kit.attempt(job, epoch=1), range(3))
        assert kit.until_proved(committer.commit, [later]) == [CommitOutcome.COMMITTED]
    assert kit.visible(kafka.bootstrap_servers, name) == [0, 1, 2]

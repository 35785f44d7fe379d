"""A partition without a leader at the end of a transaction gets no marker from Kafka 4.3
(KAFKA-20734): the coordinator takes the partition for deleted. The sink writes the marker."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.dev.kafka import LocalKafka
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.committer import KafkaCommitter
from tests.chaos import workload
from tests.chaos.driver import wait_until
from tests.integration.kafka import sink_kit as kit

TOPIC = "orders"
AWAY = 3
"""The broker that has partition 0, and dies."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with LocalKafka(3) as kafka:
        yield kafka


@pytest.fixture
def version_1(cluster: LocalKafka) -> Iterator[None]:
    """The end of a transaction leaves its producer's epoch as it is."""
    from kafka.admin import KafkaAdminClient

    with contextlib.closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)) as admin:
        admin.update_features({"transaction.version": ("SAFE_DOWNGRADE", 1)})
        yield
        admin.update_features({"transaction.version": 2})


@pytest.fixture
def topic(cluster: LocalKafka, request: pytest.FixtureRequest) -> str:
    """A topic whose partition 0 is on AWAY alone."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = re.sub(r"[^\w.-]", "-", f"{TOPIC}-{request.node.name}")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    made = NewTopic(name, 2, replica_assignment=[[AWAY], [1]], config={"min.insync.replicas": "1"})
    for future in admin.create_topics([made]).values():
        future.result(60)
    return name


def leader(servers: str, topic: str) -> int:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    return int(admin.list_topics(topic, timeout=20).topics[topic].partitions[0].leader)


def end_without_leader(
    cluster: LocalKafka, topic: str, end: Callable[..., Any], ours: KafkaCommittable, outcome: Any
) -> None:
    """End a transaction by `end` while partition 0 has no leader, and let the leader come back."""
    servers = cluster.bootstrap_servers
    cluster.kill(AWAY)
    try:
        wait_until("no leader", lambda: leader(servers, topic) == -1, 60, 0.2)
        assert kit.until_proved(end, [ours]) == [outcome]
        kit.wait_for_markers(servers)
    finally:
        cluster.restart(AWAY)
    wait_until("a leader", lambda: leader(servers, topic) == AWAY, 60, 0.2)


def hidden(cluster: LocalKafka, topic: str) -> bool:
    try:
        workload.read_topic(cluster.bootstrap_servers, topic, 3)
    except AssertionError as error:
        assert "cannot get to the end" in str(error)
        return True
    return False


def shown(cluster: LocalKafka, topic: str) -> list[int]:
    return sorted(int(row.value) for row in workload.read_topic(cluster.bootstrap_servers, topic))


def looked(committer: KafkaCommitter) -> bool:
    return list(committer.list_lingering()) == []


def assert_look_shows(cluster: LocalKafka, topic: str, committer: KafkaCommitter) -> None:
    assert hidden(cluster, topic)
    assert list(committer.list_lingering()) == []
    assert shown(cluster, topic) == list(range(20))


def used_again(cluster: LocalKafka, topic: str, ours: KafkaCommittable) -> Any:
    """Return the next producer of our id, whose transaction has the row 99 in partition 1."""
    from confluent_kafka import Producer

    next_user = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": ours.transactional_id}
    )
    next_user.init_transactions(30)
    next_user.begin_transaction()
    next_user.produce(topic, b"99", key=b"k", partition=1)
    next_user.flush(30)
    return next_user


def test_committed_rows_are_shown(cluster: LocalKafka, topic: str) -> None:
    sink, job = kit.sink_on(cluster.bootstrap_servers, topic), kit.new_job()
    ours = kit.prepare(sink, kit.attempt(job), range(20))
    assert set(ours.rows[topic]) == {0, 1}
    with kit.committing(sink, kit.driver(job)) as committer:
        end_without_leader(cluster, topic, committer.commit, ours, CommitOutcome.COMMITTED)
        assert_look_shows(cluster, topic, committer)


def test_the_next_driver_shows_rows_of_the_one_before(cluster: LocalKafka, topic: str) -> None:
    sink, job = kit.sink_on(cluster.bootstrap_servers, topic), kit.new_job()
    ours = kit.prepare(sink, kit.attempt(job), range(20))
    with kit.committing(sink, kit.driver(job)) as committer:
        end_without_leader(cluster, topic, committer.commit, ours, CommitOutcome.COMMITTED)
    with kit.committing(sink, kit.driver(job, 2)) as committer:
        more = kit.prepare(sink, kit.attempt(job, 2, epoch=1), range(20, 40))
        assert hidden(cluster, topic)
        assert kit.until_proved(committer.commit, [more]) == [CommitOutcome.COMMITTED]
        assert shown(cluster, topic) == list(range(40))


def test_committed_rows_are_shown_after_another_topic_was_deleted(
    cluster: LocalKafka, topic: str
) -> None:
    """The sink has written there too: what is no more has no transaction."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    gone = f"{topic}-gone"
    admin.create_topics([NewTopic(gone, 2, 1)])[gone].result(60)
    sink, job = kit.sink_on(cluster.bootstrap_servers, None), kit.new_job()
    first, ours = (
        kit.prepare(sink, kit.attempt(job, epoch=epoch), range(20), topic=at)
        for epoch, at in enumerate((gone, topic))
    )
    with kit.committing(sink, kit.driver(job)) as committer:
        assert kit.until_proved(committer.commit, [first]) == [CommitOutcome.COMMITTED]
        kit.wait_for_markers(cluster.bootstrap_servers)
        admin.delete_topics([gone])[gone].result(60)
        end_without_leader(cluster, topic, committer.commit, ours, CommitOutcome.COMMITTED)
        assert_look_shows(cluster, topic, committer)


def test_rows_whose_id_was_used_again_are_shown(cluster: LocalKafka, topic: str) -> None:
    sink, job = kit.sink_on(cluster.bootstrap_servers, topic), kit.new_job()
    ours = kit.prepare(sink, kit.attempt(job), range(20))
    with kit.committing(sink, kit.driver(job)) as committer:
        end_without_leader(cluster, topic, committer.commit, ours, CommitOutcome.COMMITTED)
        next_user = used_again(cluster, topic, ours)
        assert list(committer.list_lingering())  # that of the next user
        limits = sink.connection().read_limits([(topic, 0)])[topic, 0]
        assert limits.stable == limits.end
        next_user.abort_transaction(30)
        assert shown(cluster, topic) == list(range(20))


def test_aborted_rows_hold_nobody_up(cluster: LocalKafka, topic: str) -> None:
    sink, job = kit.sink_on(cluster.bootstrap_servers, topic), kit.new_job()
    first = kit.prepare(sink, kit.attempt(job), range(20))
    with kit.committing(sink, kit.driver(job)) as committer:
        assert kit.until_proved(committer.commit, [first]) == [CommitOutcome.COMMITTED]
        lost = kit.prepare(sink, kit.attempt(job, epoch=1), range(20, 40))
        end_without_leader(cluster, topic, committer.abort, lost, AbortOutcome.ABORTED)
        assert_look_shows(cluster, topic, committer)


def test_open_transactions_are_left_alone(cluster: LocalKafka, topic: str) -> None:
    sink, job = kit.sink_on(cluster.bootstrap_servers, topic), kit.new_job()
    first = kit.prepare(sink, kit.attempt(job), range(20))
    second = kit.prepare(sink, kit.attempt(job, epoch=1), range(20, 40))
    with kit.committing(sink, kit.driver(job)) as committer:
        assert kit.until_proved(committer.commit, [first]) == [CommitOutcome.COMMITTED]
        kit.wait_for_markers(cluster.bootstrap_servers)
        (left,) = committer.list_lingering()
        assert left.committable.transactional_id == second.transactional_id
        assert hidden(cluster, topic)
        assert kit.until_proved(committer.abort, [second]) == [AbortOutcome.ABORTED]
        assert shown(cluster, topic) == list(range(20))


@pytest.mark.usefixtures("version_1")
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "aborted"])
def test_the_end_of_the_next_transaction_is_not_taken_for_that_of_ours(
    cluster: LocalKafka, topic: str, committed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sink, job = kit.sink_on(cluster.bootstrap_servers, topic), kit.new_job()
    ours = kit.prepare(sink, kit.attempt(job), range(20))
    with kit.committing(sink, kit.driver(job)) as committer:
        if committed:
            end_without_leader(cluster, topic, committer.commit, ours, CommitOutcome.COMMITTED)
            used_again(cluster, topic, ours).abort_transaction(30)
        else:
            end_without_leader(cluster, topic, committer.abort, ours, AbortOutcome.ABORTED)
            used_again(cluster, topic, ours).commit_transaction(30)
        kit.wait_for_markers(cluster.bootstrap_servers)
        with kit.committing(sink, kit.driver(job, 2)) as another:
            more = kit.prepare(sink, kit.attempt(job, 2, epoch=1), range(20, 40))
            assert kit.until_proved(another.commit, [more]) == [CommitOutcome.COMMITTED]
            assert looked(another)
        assert hidden(cluster, topic)
        assert "Nothing proves how it ended" in caplog.text
        # The committer has ended ours itself.
        wait_until("its look", lambda: looked(committer) and not hidden(cluster, topic), 60)
        assert shown(cluster, topic) == ([*range(40)] if committed else [*range(20, 40), 99])


@pytest.mark.usefixtures("version_1")
def test_the_last_transaction_of_an_id_is_proved(cluster: LocalKafka, topic: str) -> None:
    sink, job = kit.sink_on(cluster.bootstrap_servers, topic), kit.new_job()
    ours = kit.prepare(sink, kit.attempt(job), range(20))
    with kit.committing(sink, kit.driver(job)) as committer:
        end_without_leader(cluster, topic, committer.commit, ours, CommitOutcome.COMMITTED)
    with kit.committing(sink, kit.driver(job, 2)) as committer:
        more = kit.prepare(sink, kit.attempt(job, 2, epoch=1), range(20, 40))
        assert kit.until_proved(committer.commit, [more]) == [CommitOutcome.COMMITTED]
        assert shown(cluster, topic) == list(range(40))

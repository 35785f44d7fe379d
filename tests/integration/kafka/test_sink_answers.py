"""The table in `sinks/kafka/end_transaction.py`, seen on the real broker: the answers of EndTxn and
DescribeTransactions, for each possible fate of a transaction."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

import pytest

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.dev.kafka import LocalKafka
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.kafka import KafkaSink
from seamark.sinks.kafka.broker import BrokerConnection, UnreachableError
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.end_transaction import fate
from tests.chaos.driver import wait_until
from tests.integration.kafka import sink_kit as kit

Topic = Callable[..., str]


class Wire:
    """EndTxn and DescribeTransactions for one transaction, as bare codes and states."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    def end(self, committable: KafkaCommittable, *, commit: bool) -> list[int]:
        """Ask until the answer is no longer 51; return the distinct answers in order."""
        codes: list[int] = []
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            (ended,) = self._connection.end([committable], commit=commit)
            assert not isinstance(ended.code, UnreachableError)
            if ended.code not in codes:
                codes.append(ended.code)
            if ended.code != 51:
                return codes
            time.sleep(0.02)
        raise AssertionError(codes)

    def state(self, committable: KafkaCommittable) -> tuple[str, int] | None:
        found = self._connection.describe([committable.transactional_id])
        state = found[committable.transactional_id]
        assert not isinstance(state, UnreachableError)
        if state is None:
            return None
        assert state.producer_id == committable.producer_id
        return state.state, state.producer_epoch - committable.producer_epoch

    def settled(self, committable: KafkaCommittable) -> tuple[str, int] | None:
        """The state once the markers are written."""
        deadline = time.monotonic() + 60
        while (state := self.state(committable)) and state[0].startswith("Prepare"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return state

    def fate(self, committable: KafkaCommittable) -> Fate:
        state = self._connection.describe([committable.transactional_id])
        found = state[committable.transactional_id]
        assert not isinstance(found, UnreachableError)
        return fate(committable, found)


@pytest.fixture
def wire(kafka: LocalKafka) -> Iterator[Wire]:
    connection = BrokerConnection(kafka.bootstrap_servers, {})
    deadline = time.monotonic() + 60  # a new broker makes its coordinator's topic when it is asked
    while isinstance(connection.describe(["any"])["any"], UnreachableError):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield Wire(connection)
    connection.close()


@pytest.fixture
def sink(kafka: LocalKafka, topic: Topic) -> KafkaSink:
    return kit.sink_on(kafka.bootstrap_servers, topic(2))


def initialise_again(kafka: LocalKafka, committable: KafkaCommittable) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
    Producer({**settings, "transactional.id": committable.transactional_id}).init_transactions(30)


def test_flushed_then_committed(wire: Wire, sink: KafkaSink) -> None:
    one = kit.prepare(sink, kit.attempt(kit.new_job()), range(9))
    assert wire.state(one) == ("Ongoing", 0)
    assert wire.end(one, commit=True) == [0]
    assert wire.end(one, commit=True)[-1] == 0
    assert wire.settled(one) == ("CompleteCommit", 1)
    assert wire.end(one, commit=True) == [0]
    assert wire.end(one, commit=False) == [48]
    assert wire.fate(one) is Fate.COMMITTED


def test_flushed_then_aborted(wire: Wire, sink: KafkaSink) -> None:
    one = kit.prepare(sink, kit.attempt(kit.new_job()), range(9))
    assert wire.end(one, commit=False) == [0]
    assert wire.end(one, commit=True)[-1] == 48
    assert wire.settled(one) == ("CompleteAbort", 1)
    assert wire.end(one, commit=True) == [48]
    assert wire.end(one, commit=False) == [0]
    assert wire.fate(one) is Fate.ABORTED


def test_timed_out(wire: Wire, sink: KafkaSink) -> None:
    short = dataclasses.replace(sink, transaction_timeout="2s")
    one = kit.prepare(short, kit.attempt(kit.new_job()), range(9))
    wait_until("it to time out", lambda: wire.state(one) != ("Ongoing", 0), 60)
    assert wire.settled(one) == ("CompleteAbort", 1)
    assert wire.end(one, commit=True) in ([48], [90])
    assert wire.fate(one) is Fate.ABORTED


@pytest.mark.parametrize("committed", [False, True])
def test_its_id_initialised_again_proves_nothing(
    kafka: LocalKafka, wire: Wire, sink: KafkaSink, committed: bool
) -> None:
    job = kit.new_job()
    one = kit.prepare(sink, kit.attempt(job), range(9))
    if committed:
        assert wire.end(one, commit=True) == [0]
        wire.settled(one)
    initialise_again(kafka, one)
    state = wire.state(one)
    assert state is not None
    assert state[0] == "Empty"
    assert state[1] >= 2
    assert wire.end(one, commit=True) == [90]
    assert wire.end(one, commit=False) == [90]
    assert wire.fate(one) is Fate.NOT_PROVED
    with kit.committing(sink, kit.driver(job)) as committer:
        assert committer.commit([one]) == [CommitOutcome.RETRY]
        assert committer.abort([one]) == [AbortOutcome.RETRY]


def test_an_id_that_the_broker_does_not_know(wire: Wire, sink: KafkaSink) -> None:
    job = kit.new_job()
    one = KafkaCommittable(f"never-used-{job}", 1, 0, {})
    assert wire.state(one) is None
    assert wire.end(one, commit=True) == [49]
    assert wire.end(one, commit=False) == [49]
    with kit.committing(sink, kit.driver(job)) as committer:
        assert committer.commit([one]) == [CommitOutcome.UNKNOWN]
        assert committer.abort([one]) == [AbortOutcome.ABORTED]


def test_one_transaction_per_initialisation_keeps_a_late_commit_off_the_next(
    kafka: LocalKafka, wire: Wire, sink: KafkaSink
) -> None:
    # The hazard: a late EndTxn for one transaction commits the next one of the same producer.
    job = kit.new_job()
    first = kit.prepare(sink, kit.attempt(job, epoch=0), range(9))
    assert wire.end(first, commit=True) == [0]
    wire.settled(first)
    second = kit.prepare(sink, kit.attempt(job, epoch=1, settled=0), range(9, 18))
    third = kit.prepare(sink, kit.attempt(job, epoch=2, settled=0), range(18, 27))
    again = next(c for c in (second, third) if c.transactional_id == first.transactional_id)
    assert wire.end(first, commit=True) == [90]
    assert wire.state(again) == ("Ongoing", 0)
    kit.abort_all(sink, job)
    assert kit.visible(kafka.bootstrap_servers, sink.topic or "") == list(range(9))

"""KafkaSink under the conformance suite: a real broker, read by a read_committed consumer.

Plain rows go through the fast producer, rows with a topic and headers of their own through the
general one. An open transaction hides all later rows of its partitions from such a reader, so each
batch goes to a partition of its own; the hiding itself is in `test_sink_transactions.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from seamark.dev.kafka import LocalKafka
from seamark.sinks.kafka import broker, preflight, producer_pool
from seamark.verify.conformance import (
    CuttingProxy,
    DeadLetterConformance,
    OutageConformance,
    SinkConformance,
    SinkUnderTest,
)
from seamark.verify.conformance.steps import JOB, UID
from tests.integration.kafka import sink_kit as kit

PARTITIONS = 64


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def under(
    kafka: LocalKafka, topic: Callable[..., str], request: pytest.FixtureRequest
) -> Iterator[SinkUnderTest]:
    name = topic(PARTITIONS)
    turns = itertools.count()
    servers = kafka.bootstrap_servers
    routed = bool(request.cls.routed)
    sink = kit.sink_on(servers, None if routed else name, transactional_id_prefix=f"test-{name}")

    def batch(values: Sequence[int]) -> pa.RecordBatch:
        partition = pa.array([next(turns) % PARTITIONS] * len(values), pa.int32())
        rows = kit.numbers(values).append_column("partition", partition)
        if routed:
            header = [{"key": "h", "value": b"1"}]
            rows = rows.append_column("topic", pa.array([name] * len(values), pa.string()))
            rows = rows.append_column("headers", pa.array([header] * len(values), HEADERS))
        return rows

    def too_large() -> pa.RecordBatch:
        rows = batch([1, 2])
        return rows.set_column(1, "value", pa.array([b"1" * 2**20, b"2" * 2**21], pa.binary()))

    yield SinkUnderTest(
        sink=sink,
        batch=batch,
        visible=lambda: kit.visible(servers, name),
        writer_failpoint="transaction-flushed",
        commit_failpoints=tuple(f"end-transaction-sent:{nth}" for nth in (1, 2, 3)),
        refused=too_large,
    )
    # The suite's job is the same in every test, and leaves transactions open.
    for job, uid in ((JOB, UID), (JOB, "other-out"), ("deadbeef", UID)):
        kit.abort_all(sink, job, uid)


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[LocalKafka, CuttingProxy]]:
    """A broker whose clients come through a proxy."""
    with CuttingProxy() as proxy:
        told = {"listeners": {"PROXIED": "PLAINTEXT"}, "advertised": {"PROXIED": [proxy.port]}}
        with LocalKafka(**told) as kafka:  # type: ignore[arg-type]
            host, _, port = kafka.address("PROXIED").partition(":")
            proxy.target = (host, int(port))
            yield kafka, proxy


@contextlib.contextmanager
def outage(proxy: CuttingProxy, how: Any) -> Iterator[None]:
    """Harm the proxy's lines, and wait seconds where the sink waits for longer: the suite asks
    dozens of times."""
    with pytest.MonkeyPatch.context() as patch, proxy.outage(how):
        patch.setattr(broker, "REQUEST_TIMEOUT_S", 1.0)
        patch.setattr(preflight, "_WHY_TIMEOUT_S", 1.0)
        patch.setattr(producer_pool, "INIT_TIMEOUT_S", 3.0)
        yield


class TestOutages(OutageConformance):
    """Away, silent, answering by halves; read beside the proxy."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, proxied: tuple[LocalKafka, CuttingProxy]) -> SinkUnderTest:
        kafka, proxy = proxied
        name, turns = f"t{uuid.uuid4().hex}", itertools.count()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(300)
        options = {"message.timeout.ms": 3000}
        sink = kit.sink_on(f"127.0.0.1:{proxy.port}", name, producer_options=options)

        def batch(values: Sequence[int]) -> pa.RecordBatch:
            partition = pa.array([next(turns) % PARTITIONS] * len(values), pa.int32())
            return kit.numbers(values).append_column("partition", partition)

        return SinkUnderTest(
            sink=sink,
            batch=batch,
            visible=lambda: kit.visible(kafka.bootstrap_servers, name),
            outages={how: partial(outage, proxy, how) for how in ("resets", "drops", "halves")},
        )


class TestKafka(SinkConformance, DeadLetterConformance):
    routed = False


@pytest.mark.chaos
class TestKafkaOfRoutedRows(SinkConformance, DeadLetterConformance):
    routed = True

"""Reads a sink's topics back for an audit: committed rows, and the transactions that wrote them.

A record batch names its producer by id and epoch, and so does each committable: a producer has one
transaction between two `init_transactions`. Consumers do not tell it, so batches are fetched raw.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError
from seamark.sinks.kafka.broker import BrokerConnection, UnreachableError
from seamark.sinks.kafka.record_batches import LogBatch, batches, decode
from seamark.sinks.kafka.value_forms import FORMS

if TYPE_CHECKING:
    from seamark.sinks.kafka.sink import KafkaSink

FETCH_BYTES = 8 << 20
_FETCH_VERSION = 12
"""The last one with topics by name."""
_WAIT_MS = 500
_BEFORE_THE_LOG = 1
_NO_DATA_ROUNDS = 20


def read(sink: "KafkaSink", asked: ReadBack, broker: BrokerConnection) -> Iterator[FoundRows]:
    """Yield the rows of every partition, up to the last stable offset of now."""
    writers: dict[tuple[int, int], tuple[int, ...]] = {}
    topics = {sink.topic} if sink.topic else set[str]()
    for number, committable in enumerate(asked.committables):
        writers[committable.producer_id, committable.producer_epoch] = (number,)
        topics |= {*committable.rows}
    value_form = FORMS.get(sink.value_format or "")
    form = _Form(asked.schema, head_bytes=len(value_form.head(0)) if value_form else 0)
    try:
        leaders = _leaders(broker, sorted(topics))
        stable = {at: limits.stable for at, limits in broker.read_limits([*leaders]).items()}
        for (topic, partition), leader in sorted(leaders.items()):
            log = _Log(broker, topic, partition, leader, stable[topic, partition])
            for producer, batches in log.committed():
                records = decode(batches)
                yield FoundRows(
                    form.rows(records, topic),
                    writers.get(producer, ()) if asked.by_transaction else None,
                    target=f"{topic}/{partition}",
                    place=f"topic {topic}, partition {partition}",
                    positions=records.offsets,
                )
    except UnreachableError as error:
        raise OperationFailedError(
            f"sink {asked.context.sink_uid!r}: {sink.describe()} cannot be read: {error}"
        ) from None


def _leaders(broker: BrokerConnection, topics: list[str]) -> dict[tuple[str, int], int]:
    described = broker.admin().describe_topics(topics)
    for topic in described:
        if topic["error_code"]:
            raise UnreachableError(f"topic {topic['name']}: error {topic['error_code']}")
    return {
        (topic["name"], partition["partition_index"]): partition["leader_id"]
        for topic in described
        for partition in topic["partitions"]
    }


@dataclass(frozen=True)
class _Form:
    """Makes rows as the sink's writer gets them (`record_columns.as_found`)."""

    schema: pa.Schema
    head_bytes: int

    def rows(self, records: Any, topic: str) -> pa.RecordBatch:
        values = records.values
        if self.head_bytes:
            values = pc.binary_slice(values, self.head_bytes)
        columns = {"key": records.keys, "value": values}
        names = self.schema.names
        if "topic" in names:
            columns["topic"] = pa.repeat(pa.scalar(topic), len(values))
        if "headers" in names:
            headers = records.headers
            if headers is None:
                kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
                headers = pa.repeat(pa.scalar([], kind), len(values))
            columns["headers"] = headers
        return pa.record_batch(columns)


@dataclass
class _Log:
    """One partition's log, up to the offset `stable`."""

    broker: BrokerConnection
    topic: str
    partition: int
    leader: int
    stable: int

    def committed(self) -> Iterator[tuple[tuple[int, int], list[LogBatch]]]:
        """Yield the batches that readers on read_committed see, by producer, a fetch at a time."""
        aborted_from: dict[int, list[int]] = {}
        aborting: set[int] = set()
        offset, empty = 0, 0
        while offset < self.stable:
            answer = self._fetch(offset)
            if answer.error_code == _BEFORE_THE_LOG:  # older rows were deleted by retention
                at = (self.topic, self.partition)
                start = self.broker.log_starts([at])[at]
                if start > offset:
                    offset = start
                    continue
            if answer.error_code:
                raise UnreachableError(
                    f"Fetch of {self.topic}, partition {self.partition}: error {answer.error_code}"
                )
            for one in answer.aborted_transactions or ():
                starts = aborted_from.setdefault(one.producer_id, [])
                if one.first_offset not in starts:
                    starts.append(one.first_offset)
            by_writer: dict[tuple[int, int], list[LogBatch]] = {}
            before = offset
            for batch in batches(bytes(answer.records or b"")):
                if batch.next_offset <= offset:  # a compressed set that begins before the offset
                    continue
                if batch.offset >= self.stable:
                    break
                offset = batch.next_offset
                producer = batch.producer_id
                starts = aborted_from.get(producer, [])
                if batch.transactional and any(start <= batch.offset for start in starts):
                    # Before a marker too: a fetch that begins at one names its transaction again.
                    starts[:] = [start for start in starts if start > batch.offset]
                    aborting.add(producer)
                if batch.control:
                    aborting.discard(producer)
                    continue
                if not (batch.transactional and producer in aborting) and batch.records:
                    by_writer.setdefault((producer, batch.producer_epoch), []).append(batch)
            yield from by_writer.items()
            empty = empty + 1 if offset == before else 0
            if empty > _NO_DATA_ROUNDS:
                raise UnreachableError(
                    f"{self.topic}, partition {self.partition}: no records from offset {offset} on"
                )

    def _fetch(self, offset: int) -> Any:
        from kafka.protocol.consumer.fetch import FetchRequest

        topic = FetchRequest.FetchTopic
        partition = topic.FetchPartition(
            partition=self.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=1,
            topics=[topic(topic=self.topic, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
            min_version=4,
            max_version=_FETCH_VERSION,
        )
        answer = self.broker.ask(request, self.leader)
        if answer.error_code:
            raise UnreachableError(f"Fetch: error {answer.error_code}")
        return answer.responses[0].partitions[0]

"""Finds rows that the broker would refuse, before they are sent.

One refusal by the broker ends the whole transaction. So the writer first measures every row, by
arithmetic over whole columns, against the limits of librdkafka and of the topic.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.dead_letters import Refusals, RefusedRow, without
from seamark.contracts.record_batches import null_where
from seamark.model.errors import WriteRefusedError
from seamark.sinks.internal.columns import not_utf8
from seamark.sinks.kafka import topic_facts
from seamark.sinks.kafka.broker import BrokerConnection, UnreachableError
from seamark.sinks.kafka.producer import ProducerConfig
from seamark.sinks.kafka.row_producer import BAD_HEADER, BAD_TOPIC, with_bad_headers
from seamark.sinks.kafka.topic_facts import TopicFacts
from seamark.sinks.kafka.writer import KafkaWriter

_ASK_TIMEOUT_S = 20.0
"""How long no broker may answer, or know the sink's own topic; it existed when the job started."""
_KNOWN_FOR_S = 60.0
_REFUSED_FOR_S = 1.0
"""For a topic that could not be written: it may be made at any moment."""
_BATCH_OVERHEAD_BYTES = 100
"""The most bytes of a record alone in its batch, besides key, value and headers."""
_HEADER_OVERHEAD_BYTES = 10
_UNUSABLE = (topic_facts.UNKNOWN, topic_facts.INVALID, topic_facts.DENIED)
"""Errors of a topic for which the row that names it is to blame."""


class SelectiveKafkaWriter(KafkaWriter):
    """See `SelectiveWriter`."""

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`."""
        if batch.num_rows == 0:
            return ()
        if self._config.topic is not None:
            # No batch made by librdkafka may be larger than the topic's limit.
            largest = limits_of(self._config, self._config.topic).largest_bytes
            self._config = self._config.capped(largest, "message.max.bytes", "batch.size")
        batch, refusals = self.encoded(batch)
        refused = self._refused(batch, refusals)
        self.write_encoded(without(batch, refused))
        return refused

    def _refused(self, batch: pa.RecordBatch, refused: Refusals) -> list[RefusedRow]:
        sizes = _sizes(batch)
        if self._form is not None:
            sizes += len(self._form.head(0))
        refused.add(with_bad_headers(batch), BAD_HEADER)
        if self._config.topic is None:
            topics = batch.column("topic")
            refused.add(bad := not_utf8(topics), BAD_TOPIC)
            topics = null_where(pa.array(bad), topics)
            batch = batch.set_column(batch.schema.get_field_index("topic"), "topic", topics)
        partitions = None
        if "partition" in batch.schema.names:
            partitions = batch.column("partition").fill_null(0).to_numpy(zero_copy_only=False)
            refused.add(partitions < 0, lambda i: f"the column `partition` is {partitions[i]}")
        for topic, of_topic in self._topics(batch):
            if not topic:
                found = "null" if topic is None else "empty"
                refused.add(of_topic, f"the row has no topic: the column `topic` is {found}")
                continue
            most = 0 if partitions is None else int(partitions[of_topic].max(initial=0))
            limits = limits_of(self._config, topic, most)
            if limits.error_code:
                refused.add(of_topic, _refusal(limits))
                continue
            limit = _row_limit(self._config, limits)
            refused.add(
                of_topic & (sizes > limit),
                lambda i, topic=topic, limit=limit: (  # type: ignore[misc]
                    f"key, value and headers have {sizes[i]} bytes, and a row of topic {topic!r} "
                    f"may have {limit}"
                ),
            )
            if partitions is not None:
                refused.add(
                    of_topic & (partitions >= limits.partitions),
                    lambda i, limits=limits: (  # type: ignore[misc]
                        f"the column `partition` is {partitions[i]}, and the topic has "
                        f"{limits.partitions}"
                    ),
                )
        return refused.rows()

    def _topics(self, batch: pa.RecordBatch) -> list[tuple[str | None, Any]]:
        """Return each topic of the rows, with a mask of its rows."""
        if self._config.topic is not None:
            return [(self._config.topic, np.ones(batch.num_rows, bool))]
        column = batch.column("topic")
        topics: list[tuple[str | None, Any]] = [
            (topic, pc.fill_null(pc.equal(column, topic), False).to_numpy(zero_copy_only=False))
            for topic in pc.unique(column).to_pylist()
            if topic is not None
        ]
        if column.null_count:
            topics.append((None, column.is_null().to_numpy(zero_copy_only=False)))
        return topics


def _sizes(batch: pa.RecordBatch) -> Any:
    """Return the bytes of key, value and headers of each row."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns[:2]:
        sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    if "headers" in batch.schema.names:
        headers = batch.column("headers")
        rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
        entries = pc.list_flatten(headers)
        lengths = np.full(len(entries), _HEADER_OVERHEAD_BYTES, np.int64)
        for name in ("key", "value"):
            part = pc.binary_length(pc.struct_field(entries, name))
            lengths += pc.fill_null(part, 0).to_numpy(zero_copy_only=False)
        np.add.at(sizes, rows, lengths)
    return sizes


def _row_limit(config: ProducerConfig, limits: TopicFacts) -> int:
    own = int(dict(config.settings)["message.max.bytes"])
    if limits.largest_bytes is None:
        return own
    return min(own, limits.largest_bytes - _BATCH_OVERHEAD_BYTES)


_known: dict[tuple[object, ...], tuple[float, TopicFacts]] = {}


def limits_of(config: ProducerConfig, topic: str, partition: int = 0) -> TopicFacts:
    """Return the topic's limits as given by the brokers, now or within the last minute in this
    process; now, if the topic had no such `partition` then. Brokers may forbid this user to read a
    topic's settings; its size limit is then unknown, and a row above it fails the epoch."""
    key = (dict(config.settings).get("bootstrap.servers"), config.sink, topic)
    at, facts = _known.get(key, (-_KNOWN_FOR_S, None))
    known_for_s = _KNOWN_FOR_S if facts is None or not facts.error_code else _REFUSED_FOR_S
    grown = facts is not None and not facts.error_code and partition >= facts.partitions
    if facts is None or grown or time.monotonic() - at > known_for_s:
        facts = _ask(config, topic)
        _known[key] = (time.monotonic(), facts)
    return facts


def _ask(config: ProducerConfig, topic: str) -> TopicFacts:
    settings = dict(config.settings)
    deadline = time.monotonic() + _ASK_TIMEOUT_S
    with contextlib.closing(BrokerConnection(settings["bootstrap.servers"], settings)) as broker:
        while True:
            try:
                facts = topic_facts.ask(broker, [topic])[topic]
                unusable = config.topic is None and facts.error_code in _UNUSABLE
                if not facts.error_code or unusable:
                    return facts
                why = _refusal(facts)
            except UnreachableError as error:
                why = f"no broker has answered within {_ASK_TIMEOUT_S:g} s: {error}"
            if time.monotonic() > deadline:
                raise WriteRefusedError(f"{config.sink}: {why}")
            time.sleep(0.1)


def _refusal(topic: TopicFacts) -> str:
    from kafka.errors import for_code

    error = for_code(topic.error_code)
    return f"topic {topic.name!r}: {error.__name__}: {error.description}"

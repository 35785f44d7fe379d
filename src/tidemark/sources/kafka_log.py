"""Asks Kafka's brokers what the log of a partition holds: `tidemark offsets` moves within that.

confluent-kafka is imported when it is used; the options are librdkafka's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.model.errors import MissingDependencyError, OperationFailedError, UserError

ASK_S = 20.0
"""How long the brokers may take for one answer."""

Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


@dataclass(frozen=True)
class LogBounds:
    """The first offset that a partition's log still holds, and the one after its last row that a
    reader may see (of ``read_committed``, the first one of an open transaction)."""

    start: int
    end: int


class KafkaLog:
    """The logs of one cluster. `options`: librdkafka's settings of a consumer, as
    ``security.protocol``; ``isolation.level`` is ``read_committed`` unless given.

    Raises UserError for options that librdkafka refuses, and in every method OperationFailedError
    if no broker answers within 20 seconds.
    """

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str] | None = None) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise MissingDependencyError(
                "offsets: confluent-kafka is not installed; get it with: "
                "pip install 'tidemark[kafka]'"
            ) from None
        self._kafka: Any = confluent_kafka
        self._servers = bootstrap_servers
        settings = {
            "isolation.level": "read_committed",
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"tidemark-offsets-{uuid.uuid4().hex}",  # is never joined
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
        try:
            self._consumer = confluent_kafka.Consumer(settings)
        except confluent_kafka.KafkaException as error:
            raise UserError(f"Kafka at {bootstrap_servers}: {error.args[0].str()}") from None

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions that a topic has; none if there is no such topic."""
        found = self._ask(lambda: self._consumer.list_topics(topic, timeout=ASK_S))
        described = found.topics.get(topic)
        if described is None or described.error is not None:
            return []
        return sorted(described.partitions)

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, LogBounds]:
        """Return the bounds of those partitions that there are."""
        wanted = set(partitions)
        there = {topic: self.partitions(topic) for topic in {topic for topic, _ in wanted}}
        found = {}
        for topic, partition in sorted(wanted):
            if partition in there[topic]:
                at = self._kafka.TopicPartition(topic, partition)
                low, high = self._ask(
                    lambda at=at: self._consumer.get_watermark_offsets(at, timeout=ASK_S)
                )
                found[topic, partition] = LogBounds(low, max(high, low))
        return found

    def at_time(
        self, partitions: Mapping[Partition, LogBounds], time_ms: int
    ) -> dict[Partition, int]:
        """Return of each partition the offset of its first row whose timestamp is `time_ms`
        (milliseconds since 1970) or later; its log's end if it has none."""
        asked = [self._kafka.TopicPartition(t, p, time_ms) for t, p in partitions]
        if not asked:
            return {}
        answers = self._ask(lambda: self._consumer.offsets_for_times(asked, timeout=ASK_S))
        found = {}
        for answer in answers:
            if answer.error is not None:
                raise OperationFailedError(
                    f"Kafka at {self._servers}: {answer.topic}/{answer.partition}: {answer.error}"
                )
            at = partitions[answer.topic, answer.partition]
            # A row of an undecided transaction is beyond what a reader may see.
            found[answer.topic, answer.partition] = (
                min(answer.offset, at.end) if answer.offset >= 0 else at.end
            )
        return found

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except self._kafka.KafkaException as error:
            raise OperationFailedError(
                f"Kafka at {self._servers} does not answer: {error.args[0].str()}; look at "
                "--bootstrap-servers and --command-config"
            ) from None

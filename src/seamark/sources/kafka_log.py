"""Asks Kafka's brokers what the log of a partition holds: `seamark offsets` moves within that.

confluent-kafka is imported when it is used; the options are librdkafka's.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seamark.model.errors import MissingDependencyError, OperationFailedError, UserError

ASK_S, TRY_S = 20.0, 4.0
"""How long the brokers may take for one answer; and how often it is looked meanwhile whether they
have refused the login."""

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
    if no broker answers within 20 seconds, or one refuses to.
    """

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str] | None = None) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise MissingDependencyError(
                "offsets: confluent-kafka is not installed; get it with: "
                "pip install 'seamark[kafka]'"
            ) from None
        self._kafka: Any = confluent_kafka
        self._servers = bootstrap_servers
        settings = {
            "isolation.level": "read_committed",
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"seamark-offsets-{uuid.uuid4().hex}",  # is never joined
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "log_level": 0,
            "error_cb": self._note,
        }
        self._refusal = ""
        try:
            self._consumer = confluent_kafka.Consumer(settings)
        except confluent_kafka.KafkaException as error:
            raise UserError(f"Kafka at {bootstrap_servers}: {error.args[0].str()}") from None

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions that a topic has; none if there is no such topic."""
        found = self._ask(self._consumer.list_topics, topic)
        described = found.topics.get(topic)
        if described is None:
            return []
        if described.error is None:
            return sorted(described.partitions)
        if described.error.code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise OperationFailedError(
            f"Kafka at {self._servers}: topic {topic!r}: {described.error.str()}"
        )

    def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, LogBounds]:
        """Return the bounds of those partitions that there are."""
        wanted = set(partitions)
        there = {topic: self.partitions(topic) for topic in {topic for topic, _ in wanted}}
        found = {}
        for topic, partition in sorted(wanted):
            if partition in there[topic]:
                at = self._kafka.TopicPartition(topic, partition)
                low, high = self._ask(self._consumer.get_watermark_offsets, at)
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
        answers = self._ask(self._consumer.offsets_for_times, asked)
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

    def _ask(self, question: Callable[..., Any], about: Any) -> Any:
        deadline_s = time.monotonic() + ASK_S
        while True:
            try:
                return question(about, timeout=TRY_S)
            except self._kafka.KafkaException as error:
                self._consumer.poll(0)  # calls `_note`
                why = error.args[0]
                silent = self._kafka.KafkaError._TIMED_OUT, self._kafka.KafkaError._TRANSPORT
                if why.code() in silent and not self._refusal and time.monotonic() < deadline_s:
                    continue
                raise OperationFailedError(
                    f"Kafka at {self._servers} does not answer: {self._refusal or why.str()}; look "
                    "at --bootstrap-servers and --command-config"
                ) from None

    def _note(self, error: Any) -> None:
        if error.code() in (self._kafka.KafkaError._AUTHENTICATION, self._kafka.KafkaError._SSL):
            self._refusal = str(error.str())

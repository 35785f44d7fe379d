"""Asks Kafka's brokers for the bounds of a partition's log: `seamark offsets` moves within them.

confluent-kafka is imported at first use; the options are librdkafka's.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seamark.model.errors import OperationFailedError, UserError
from seamark.model.packages import load_driver

ASK_S, TRY_S = 20.0, 4.0
"""The brokers' time limit for one answer, and the time between two looks for a refused login."""

Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


@dataclass(frozen=True)
class LogBounds:
    """The first offset still in a partition's log, and the offset after its last readable row.

    With ``read_committed`` the latter is the offset of the first open transaction, if there is one.
    """

    start: int
    end: int


class KafkaLog:
    """The logs of one cluster.

    `options`: librdkafka's settings of a consumer, such as ``security.protocol``;
    ``isolation.level`` is ``read_committed`` unless given.

    Raises UserError for options refused by librdkafka. Every method raises OperationFailedError if
    no broker answers within `patience_s`, or a broker refuses; it ends with `remedy`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, str] | None = None,
        patience_s: float = ASK_S,
        remedy: str = "look at --bootstrap-servers and --command-config",
    ) -> None:
        if not bootstrap_servers.strip():
            raise UserError(
                "--bootstrap-servers is ''; give HOST:PORT, several with commas between"
            )
        self._kafka = load_driver("confluent_kafka", "the Kafka client is not installed", "kafka")
        self._servers = bootstrap_servers
        self._patience_s, self._remedy = patience_s, remedy
        settings = {
            "isolation.level": "read_committed",
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"seamark-offsets-{uuid.uuid4().hex}",  # never joined
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "error",  # else rows deleted meanwhile are passed over
            "log_level": 0,
            "error_cb": self._note,
        }
        self._refusal = ""
        try:
            self._consumer = self._kafka.Consumer(settings)
        except self._kafka.KafkaException as error:
            raise UserError(f"Kafka at {bootstrap_servers}: {error.args[0].str()}") from None

    def cluster(self) -> tuple[int, int]:
        """Return how many brokers and topics there are."""
        metadata = self._ask(self._consumer.list_topics, None)
        return len(metadata.brokers), len(metadata.topics)

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic; none if there is no such topic."""
        metadata = self._ask(self._consumer.list_topics, topic)
        described = metadata.topics.get(topic)
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
        """Return the bounds of the existing ones among these partitions."""
        wanted = set(partitions)
        there = {topic: self.partitions(topic) for topic in {topic for topic, _ in wanted}}
        by_partition = {}
        for topic, partition in sorted(wanted):
            if partition in there[topic]:
                at = self._kafka.TopicPartition(topic, partition)
                low, high = self._ask(self._consumer.get_watermark_offsets, at)
                by_partition[topic, partition] = LogBounds(low, max(high, low))
        return by_partition

    def at_time(
        self, partitions: Mapping[Partition, LogBounds], time_ms: int
    ) -> dict[Partition, int]:
        """Return each partition's first offset with a timestamp of `time_ms` or later.

        `time_ms` is milliseconds since 1970. A partition without such a row has the end of its log.
        """
        asked = [self._kafka.TopicPartition(t, p, time_ms) for t, p in partitions]
        if not asked:
            return {}
        answers = self._ask(self._consumer.offsets_for_times, asked)
        by_partition = {}
        for answer in answers:
            if answer.error is not None:
                raise OperationFailedError(
                    f"Kafka at {self._servers}: {answer.topic}/{answer.partition}: {answer.error}"
                )
            at = partitions[answer.topic, answer.partition]
            # A reader must not see a row of an undecided transaction.
            by_partition[answer.topic, answer.partition] = (
                min(answer.offset, at.end) if answer.offset >= 0 else at.end
            )
        return by_partition

    def follow(self, starts: Mapping[Partition, int]) -> Iterator[Any]:
        """Yield the messages of these partitions from these offsets on, without an end; None now
        and then while there is none. Raises OperationFailedError for rows that are gone, too."""
        self._consumer.assign(
            [self._kafka.TopicPartition(t, p, offset) for (t, p), offset in starts.items()]
        )
        errors = self._kafka.KafkaError
        for_good = (
            errors.UNKNOWN_TOPIC_OR_PART, errors.TOPIC_AUTHORIZATION_FAILED,
            errors._AUTO_OFFSET_RESET,
        )  # fmt: skip
        while True:
            message = self._consumer.poll(0.2)
            if message is None or message.error() is None:
                yield message
            elif message.error().code() in for_good:
                raise OperationFailedError(f"Kafka at {self._servers}: {message.error().str()}")

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _ask(self, question: Callable[..., Any], about: Any) -> Any:
        deadline_s = time.monotonic() + self._patience_s
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
                    f"Kafka at {self._servers} does not answer: {self._refusal or why.str()}; "
                    f"{self._remedy}"
                ) from None

    def _note(self, error: Any) -> None:
        if error.code() in (self._kafka.KafkaError._AUTHENTICATION, self._kafka.KafkaError._SSL):
            self._refusal = str(error.str())

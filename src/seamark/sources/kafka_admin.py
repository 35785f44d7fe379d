"""Asks Kafka's brokers with Spark's own Kafka client, in Spark's JVM: commits offsets to a consumer
group, and looks at the retention of topics: rows deleted while the job is down are lost.

That client takes the source's options unchanged, security included; librdkafka's have other names.
The group is the user's `group_id` itself; Spark's groups for reading only begin with it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark.model.findings import Finding, FindingCode, Severity
from seamark.model.kafka_client import (
    ANSWER_MS,
    admin_client,
    asked,
    described,
    existing,
    kafka_error,
)

TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class Retention:
    """How long a topic keeps its rows. `retention_s` is inf without a limit."""

    topic: str
    retention_s: float


@dataclass(frozen=True)
class SourceTopics:
    """What the brokers tell of a source's topics: those that it reads; how long each keeps its
    rows, but of those that are only compacted; the named ones that they do not show; those that
    this user may not read; and why the retention is not known."""

    read: Sequence[str]
    retained: Sequence[Retention]
    missing: Sequence[str]
    unreadable: Sequence[str]
    not_told: OSError | None = None


@dataclass(frozen=True)
class KafkaReading:
    """The `InspectedSource` of a stream from Kafka; `options` are those of Spark's reader."""

    options: Mapping[str, str] = field(repr=False)  # may hold passwords

    def inspect_source(self, uid: str, jvm: Any, tolerated_downtime_s: float) -> list[Finding]:
        """See `InspectedSource`: whether the topics are there, may be read, and keep their rows
        for long enough."""
        options = {name.lower(): value for name, value in self.options.items()}
        servers = options.get("kafka.bootstrap.servers", "")
        try:
            topics = ask_topics(jvm, options)
        except OSError as error:
            return [not_told(uid, servers, error)]
        refusal, pattern = topics.not_told, options.get("subscribepattern")
        return [
            *topics_missing(uid, topics.missing, servers),
            *([nothing_matches(uid, pattern, servers)] if pattern and not topics.read else []),
            *topics_unreadable(uid, topics.unreadable),
            *retention_too_short(uid, topics.retained, tolerated_downtime_s),
            *([not_told(uid, servers, refusal)] if refusal else []),
        ]


def ask_topics(jvm: Any, options: Mapping[str, str]) -> SourceTopics:
    """Ask for the topics in the options of Spark's reader, by names in lower case. Raises OSError
    with the brokers' answer if they tell nothing at all."""
    refusal = None
    with asked(jvm, options) as admin:
        there = existing(jvm, admin)
        names = _topics(jvm, options, there)
        kinds = jvm.org.apache.kafka.common.config
        resources = jvm.java.util.ArrayList()
        for name in names:
            resources.append(kinds.ConfigResource(kinds.ConfigResource.Type.TOPIC, name))
        unreadable = _unreadable(jvm, admin, names)
        try:
            unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
            answers = admin.describeConfigs(resources).all().get(ANSWER_MS, unit)
        except Exception as error:
            refusal, resources = kafka_error(error), ()
        configs = [(str(resource.name()), answers.get(resource)) for resource in resources]
    retained = [
        Retention(name, _limit_s(config.get("retention.ms").value()))
        for name, config in configs
        if "delete" in str(config.get("cleanup.policy").value())
    ]
    return SourceTopics(names, retained, sorted(_named(options) - there), unreadable, refusal)


def _unreadable(jvm: Any, admin: Any, names: Sequence[str]) -> list[str]:
    """Return those of the topics that this user may see, and may not read."""
    answers = described(jvm, admin, names)
    may = {name: answers.get(name).authorizedOperations() for name in names}
    read = jvm.org.apache.kafka.common.acl.AclOperation.READ
    return [name for name, rights in may.items() if rights and not rights.contains(read)]


def _topics(jvm: Any, options: Mapping[str, str], there: set[str]) -> list[str]:
    if pattern := options.get("subscribepattern"):
        matches = jvm.java.util.regex.Pattern.matches
        return sorted(name for name in there if matches(pattern, name))
    return sorted(there & _named(options))


def _named(options: Mapping[str, str]) -> set[str]:
    assigned = json.loads(options.get("assign", "{}"))
    return {name.strip() for name in (*options.get("subscribe", "").split(","), *assigned)} - {""}


def _limit_s(text: object) -> float:
    milliseconds = int(str(text))
    return milliseconds / 1000 if milliseconds >= 0 else float("inf")


def topics_unreadable(uid: str, names: Sequence[str]) -> Iterator[Finding]:
    """Spark's reader would fail in its first epoch."""
    for name in names:
        found = f"not authorised to read topic {name!r}"
        yield Finding(FindingCode.SV003, f"source `{uid}`", found, "grant READ on it")


def topics_missing(uid: str, missing: Sequence[str], servers: str) -> Iterator[Finding]:
    """Spark's reader waits for no topic: its query would fail."""
    if missing:
        one = len(missing) == 1
        yield Finding(
            FindingCode.SV004,
            f"source `{uid}`",
            f"topic{'' if one else 's'} {', '.join(map(repr, missing))} "
            f"{'does' if one else 'do'} not exist at the brokers at {servers}",
            f"correct the name{'' if one else 's'}, or create {'it' if one else 'them'}; where "
            "this user may not see a topic, grant DESCRIBE on it",
        )


def nothing_matches(uid: str, pattern: str, servers: str) -> Finding:
    """Spark's reader waits for topics that match, without a word."""
    return Finding(
        FindingCode.SV004,
        f"source `{uid}`",
        f"no topic at the brokers at {servers} matches the pattern {pattern!r}, so nothing is read",
        "correct it, or create a topic; where this user may not see one, grant DESCRIBE on it",
        Severity.WARNING,
    )


def retention_too_short(
    uid: str, topics: Sequence[Retention], tolerated_downtime_s: float
) -> Iterator[Finding]:
    """Kafka deletes rows that a job must still read after it was down."""
    for topic in topics:
        if topic.retention_s < tolerated_downtime_s:
            yield Finding(
                FindingCode.SC004,
                f"source `{uid}`",
                f"topic {topic.topic!r} keeps rows for {topic.retention_s:g}s, and the job may be "
                f"down for {tolerated_downtime_s:g}s: rows deleted meanwhile are lost",
                f"raise retention.ms of the topic above {tolerated_downtime_s * 1000:.0f}, or "
                "lower CheckpointConfig tolerated_downtime",
            )


def not_told(uid: str, servers: str, error: OSError) -> Finding:
    """Return the finding of brokers that do not answer a source, or not this user."""
    subject = f"source `{uid}`"
    if "Authorization" in str(error):
        return Finding(
            FindingCode.SV003,
            subject,
            f"not authorised to read its topics' settings, so their retention is unknown: {error}",
            "grant DESCRIBE_CONFIGS on the topics",
            Severity.NOTE,
        )
    return Finding(
        FindingCode.SV001,
        subject,
        f"no answer from the brokers at {servers}: {error}",
        "see that the address is right and reachable, and that the kafka.* options are those of "
        "the broker's listener",
    )


class KafkaGroupOffsets:
    """The `OffsetCommitter` of one group, the user's `group_id` itself.

    `options` are those of Spark's reader.
    """

    def __init__(self, jvm: Any, options: Mapping[str, str], group_id: str) -> None:
        self._jvm = jvm
        self._group_id = group_id
        self._admin: Any = None
        self._options = options

    def commit(self, end_offset: Any) -> None:
        """Commit ``{topic: {partition: next offset}}``; raises OSError with Kafka's answer."""
        kafka, java = self._jvm.org.apache.kafka, self._jvm.java
        if self._admin is None:
            self._admin = admin_client(self._jvm, self._options, TIMEOUT_MS)
        offsets = java.util.HashMap()
        for topic, partitions in end_offset.items():
            for partition, offset in partitions.items():
                offsets.put(
                    kafka.common.TopicPartition(topic, int(partition)),
                    kafka.clients.consumer.OffsetAndMetadata(int(offset)),
                )
        answer = self._admin.alterConsumerGroupOffsets(self._group_id, offsets).all()
        try:
            answer.get(TIMEOUT_MS, java.util.concurrent.TimeUnit.MILLISECONDS)
        except Exception as error:
            raise kafka_error(error, f"group {self._group_id}: ") from error

    def close(self) -> None:
        """Close the connection without waiting for it."""
        if self._admin is not None:
            self._admin.close(self._jvm.java.time.Duration.ofMillis(0))

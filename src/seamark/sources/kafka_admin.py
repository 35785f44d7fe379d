"""Asks Kafka's brokers with Spark's own Kafka client, in Spark's JVM: commits offsets to a consumer
group, and looks at the retention of topics: rows deleted while the job is down are lost.

That client takes the source's options unchanged, security included; librdkafka's have other names.
The group is the user's `group_id` itself; Spark's groups for reading only begin with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding, FindingCode, Severity
from seamark.model.kafka_client import ANSWER_MS, admin_client, described, kafka_error

TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class Retention:
    """How long a topic keeps its rows. `retention_s` is inf without a limit."""

    topic: str
    retention_s: float


@dataclass(frozen=True)
class SourceTopics:
    """What the brokers tell of a source's topics: how long each keeps its rows, but of those that
    are only compacted; the named ones that they do not show; those that this user may not read; and
    why the first is not known."""

    retained: Sequence[Retention]
    missing: Sequence[str]
    unreadable: Sequence[str]
    not_told: OSError | None = None


def ask_topics(jvm: Any, options: Mapping[str, str]) -> SourceTopics:
    """Ask for the topics in the options of Spark's reader. Raises OSError with the brokers' answer
    if they tell nothing at all, ConfigurationError for a pattern that Java does not take."""
    if pattern := options.get("subscribePattern"):
        _require_pattern(jvm, pattern)
    admin, refusal = admin_client(jvm, options, ANSWER_MS), None
    try:
        unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        existing = set(admin.listTopics().names().get(ANSWER_MS, unit))
        names = _topics(jvm, options, existing)
        kinds = jvm.org.apache.kafka.common.config
        asked = jvm.java.util.ArrayList()
        for name in names:
            asked.append(kinds.ConfigResource(kinds.ConfigResource.Type.TOPIC, name))
        unreadable = _unreadable(jvm, admin, names)
        try:
            answers = admin.describeConfigs(asked).all().get(ANSWER_MS, unit)
        except Exception as error:
            refusal, asked = kafka_error(error), ()
        configs = [(str(resource.name()), answers.get(resource)) for resource in asked]
    except Exception as error:
        raise kafka_error(error) from error
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))
    retained = [
        Retention(name, _limit_s(config.get("retention.ms").value()))
        for name, config in configs
        if "delete" in str(config.get("cleanup.policy").value())
    ]
    return SourceTopics(retained, sorted(_named(options) - existing), unreadable, refusal)


def _unreadable(jvm: Any, admin: Any, names: Sequence[str]) -> list[str]:
    """Return those of the topics that this user may see, and may not read."""
    answers = described(jvm, admin, names)
    may = {name: answers.get(name).authorizedOperations() for name in names}
    read = jvm.org.apache.kafka.common.acl.AclOperation.READ
    return [name for name, rights in may.items() if rights and not rights.contains(read)]


def _require_pattern(jvm: Any, pattern: str) -> None:
    try:
        jvm.java.util.regex.Pattern.compile(pattern)
    except Exception as error:
        said = str(kafka_error(error)).splitlines()[0].rpartition("Exception: ")[2]
        raise ConfigurationError(
            f"pattern is {pattern!r}, and Java says: {said}; give a regular expression of Java's"
        ) from None


def _topics(jvm: Any, options: Mapping[str, str], existing: set[str]) -> list[str]:
    if pattern := options.get("subscribePattern"):
        matches = jvm.java.util.regex.Pattern.matches
        return sorted(name for name in existing if matches(pattern, name))
    return sorted(existing & _named(options))


def _named(options: Mapping[str, str]) -> set[str]:
    return {name.strip() for name in options.get("subscribe", "").split(",")} - {""}


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

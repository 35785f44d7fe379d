"""Looks at the retention of a source's topics, with Spark's own Kafka client in Spark's JVM: rows
deleted while the job is down cannot be read any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seamark.model.findings import Finding, FindingCode, Severity
from seamark.sources.kafka_group import admin_client

ANSWER_MS = 5_000


@dataclass(frozen=True)
class Retention:
    """How long a topic keeps its rows. `retention_s` is inf without a limit."""

    topic: str
    retention_s: float


def ask_retention(jvm: Any, options: Mapping[str, str]) -> list[Retention]:
    """Return the retention of each topic in the options of Spark's reader; leaves out topics that
    are only compacted, or do not exist. Raises OSError with the brokers' answer."""
    admin = admin_client(jvm, options, ANSWER_MS)
    try:
        unit = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        names = _topics(jvm, options, set(admin.listTopics().names().get(ANSWER_MS, unit)))
        kinds = jvm.org.apache.kafka.common.config
        asked = jvm.java.util.ArrayList()
        for name in names:
            asked.append(kinds.ConfigResource(kinds.ConfigResource.Type.TOPIC, name))
        found = admin.describeConfigs(asked).all().get(ANSWER_MS, unit)
        configs = [(str(resource.name()), found.get(resource)) for resource in asked]
    except Exception as error:
        said = getattr(error, "java_exception", None)  # py4j's own text says little
        if said is None:
            raise
        raise OSError(str(said.getCause() or said)) from error
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))
    return [
        Retention(name, _limit_s(config.get("retention.ms").value()))
        for name, config in configs
        if "delete" in str(config.get("cleanup.policy").value())
    ]


def _topics(jvm: Any, options: Mapping[str, str], existing: set[str]) -> list[str]:
    if pattern := options.get("subscribePattern"):
        matches = jvm.java.util.regex.Pattern.matches
        return sorted(name for name in existing if matches(pattern, name))
    return sorted(existing & {name.strip() for name in options.get("subscribe", "").split(",")})


def _limit_s(text: object) -> float:
    milliseconds = int(str(text))
    return milliseconds / 1000 if milliseconds >= 0 else float("inf")


def retention_too_short(
    uid: str, topics: list[Retention], tolerated_downtime_s: float
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

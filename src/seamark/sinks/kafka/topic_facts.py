"""What the brokers say of topics: asked by the driver's preflight, and by a task that must find the
rows that a topic would refuse."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.sinks.kafka.broker import BrokerConnection, UnreachableError

_log = logging.getLogger(__name__)

LEAST_IN_SYNC = "min.insync.replicas"
_LARGEST, RETENTION = "max.message.bytes", "retention.ms"
UNKNOWN, INVALID, DENIED = 3, 17, 29


@dataclass(frozen=True)
class TopicFacts:
    """A topic at the brokers.

    replicas, in_sync: of its worst partition.
    may: the operations allowed to this user; empty if the broker does not tell.
    least_in_sync: ``min.insync.replicas``; None if it may not be read.
    partitions: their number.
    largest_bytes: the limit of a batch; None if it may not be read.
    retention_ms: how long it keeps rows, -1 for ever; None if it may not be read.
    """

    name: str
    error_code: int = 0
    replicas: int = 0
    in_sync: int = 0
    may: frozenset[str] = frozenset()
    least_in_sync: int | None = None
    partitions: int = 0
    largest_bytes: int | None = None
    retention_ms: int | None = None


def ask(broker: BrokerConnection, names: Sequence[str]) -> dict[str, TopicFacts]:
    """Return the facts of each topic. Raises UnreachableError."""
    from kafka.errors import KafkaError

    try:
        described = broker.admin().describe_topics(list(names)) if names else []
    except KafkaError as error:
        raise UnreachableError(f"{type(error).__name__}: {error}") from error
    there = [topic["name"] for topic in described if not topic["error_code"]]
    settings = settings_of(broker, "TOPIC", there, (LEAST_IN_SYNC, _LARGEST, RETENTION))
    return {topic["name"]: _facts(topic, settings.get(topic["name"], {})) for topic in described}


def settings_of(
    broker: BrokerConnection, kind: str, names: Sequence[str], settings: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return these settings of each topic or broker that tells them. Many clusters do not let a job
    read settings, and answer without them. Raises UnreachableError if none can be reached."""
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

    asked = [ConfigResource(ConfigResourceType[kind], name, list(settings)) for name in names]
    try:
        told = broker.admin().describe_configs(asked, config_filter="all") if asked else {}
    except KafkaError as error:
        _log.info("settings of %s could not be read: %s", ", ".join(names), error)
        return {}
    return {
        name: {setting: int(entry["value"]) for setting, entry in values.items()}
        for name, values in told.get(kind.lower(), {}).items()
    }


def _facts(topic: Mapping[str, Any], settings: Mapping[str, int]) -> TopicFacts:
    partitions = topic.get("partitions") or []
    return TopicFacts(
        topic["name"],
        topic["error_code"],
        min((len(p["replica_nodes"]) for p in partitions), default=0),
        min((len(p["isr_nodes"]) for p in partitions), default=0),
        frozenset(topic.get("authorized_operations") or ()),
        settings.get(LEAST_IN_SYNC),
        len(partitions),
        settings.get(_LARGEST),
        settings.get(RETENTION),
    )

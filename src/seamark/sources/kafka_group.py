"""Commits offsets to a Kafka consumer group with Spark's own Kafka client, in Spark's JVM.

That client takes the source's options unchanged, security included; librdkafka's have other names.
The group is the user's `group_id` itself; Spark's groups for reading only begin with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TIMEOUT_MS = 20_000


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
            said = getattr(error, "java_exception", None)  # py4j's own text says little
            if said is None:
                raise
            raise OSError(f"group {self._group_id}: {said.getCause() or said}") from error

    def close(self) -> None:
        """Close the connection without waiting for it."""
        if self._admin is not None:
            self._admin.close(self._jvm.java.time.Duration.ofMillis(0))


def admin_client(jvm: Any, options: Mapping[str, str], timeout_ms: int) -> Any:
    """Return an open AdminClient of Spark's own Kafka client; `options` are those of Spark's
    reader."""
    admin = jvm.org.apache.kafka.clients.admin
    known = admin.AdminClientConfig.configNames()
    settings = jvm.java.util.HashMap()
    for option, value in options.items():
        name = option.lower().removeprefix("kafka.")
        if name != option.lower() and known.contains(name):  # the others are the consumer's
            settings.put(name, value)
    settings.put("default.api.timeout.ms", str(timeout_ms))
    settings.put("request.timeout.ms", str(timeout_ms // 2))
    return admin.AdminClient.create(settings)

"""`KafkaSource`: the user's configuration, and the Spark Kafka options made from it.

Spark's own connector reads; its offsets are in Spark's offset log, part of every checkpoint.
`KafkaGroupOffsets` commits them to a consumer group.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from seamark.api.checks import one_of
from seamark.contracts.source import StreamReader
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding
from seamark.model.kafka_options import TOPIC_NAMES, is_topic, to_java
from seamark.sources.kafka_admin import KafkaGroupOffsets, KafkaReading
from seamark.sources.registry_values import RegistryDecoder, RegistryValues
from seamark.sources.settings import (
    Ending,
    check_ending,
    checked_options,
    kafka_time_ms,
    moment_of,
)

_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
_STARTING = "starting_offsets= says where to start"
_TOPICS = "topics= or pattern= says what to read"
_ENDING = "a streaming source ends by ending='latest'"
_OWNED = {
    "kafka.bootstrap.servers": "bootstrap_servers= says it",
    "subscribe": _TOPICS,
    "subscribepattern": _TOPICS,
    "assign": _TOPICS,
    "kafka.isolation.level": "isolation_level= says it",
    "kafka.group.id": "give group_id=; Spark needs a group of its own for each run",
    "groupidprefix": "give group_id=",
    "kafka.auto.offset.reset": _STARTING,
    "kafka.enable.auto.commit": "offsets belong to the checkpoint",
}
_OWNED_PREFIXES = {"starting": _STARTING, "ending": _ENDING}
_DEFAULTS = {
    "failOnDataLoss": "true",
    # Spark's reader asks the broker twice for the log's bounds after every poll. With Kafka's 500
    # records per poll it spends half of its time waiting.
    "kafka.max.poll.records": "10000",
    # A fetch waiting at the log's end delays the next request on its connection. With Kafka's
    # 500 ms, every epoch reading up to the end takes half a second more.
    "kafka.fetch.max.wait.ms": "20",
}


@dataclass(frozen=True)
class KafkaSource(Ending):
    """Read Kafka topics, with the columns of Spark's Kafka source.

    They are key, value, topic, partition, offset, timestamp and timestampType.

    bootstrap_servers: ``"host:port,host:port"``.
    topics: one topic or several; or `pattern`: a Java regular expression of topic names, which
        includes topics created later. Exactly one of the two.
    starting_offsets: the start of a job without a checkpoint; a job with a checkpoint goes on from
        there. ``"earliest"``, ``"latest"``; a moment, as `datetime` or ISO text with its time zone:
        rows of that moment and later (``"2026-01-31T08:00:00Z"``; a partition without any starts at
        its end); or the offset of every partition, ``{"clicks": {0: 1200, 1: 1180}}``, where -2 is
        earliest and -1 latest.
    ending: ``"never"``, or ``"latest"``: the job ends after reading the rows present at its start.
    group_id: the consumer group for the offsets of completed checkpoints, so that Kafka's lag tools
        show this job; without it no group gets them. Offsets are kept in the checkpoint, and never
        taken from a group. Spark's own groups, made for each run, have `group_id` as their prefix.
    isolation_level: ``"read_committed"`` leaves out rows of aborted transactions and waits for
        undecided ones. With Kafka's own default, ``"read_uncommitted"``, a job gets rows withdrawn
        by their exactly-once producer, and then their repetition: duplicates that no sink can undo.
    value_format: ``"avro"``, ``"protobuf"`` or ``"json-schema"``: `value` is no longer bytes, but
        the columns of the reader's schema, as a struct (``select("value.*")``), read from
        Confluent's wire format by each record's writer's schema
        (docs/how-to/read-registry-values.md). A tombstone's is null.
    schema_registry: for it: settings of Confluent's registry client, as ``{"url": …}``. Tasks ask
        it too, with the extra ``[avro]`` (or ``[protobuf]``) on each executor.
    value_schema: the reader's schema: its version at the registry, or its text; else the latest
        version, looked up whenever the program starts.
    subject: the registry's name for the schema; ``<topic>-value`` for a single topic.
    on_bad_row: an unreadable record ``"fail"``s the epoch, or ``"keep"`` has it as a row with
        `value` null and a further column, `unreadable`: a struct of `reason` and `value` (bytes).
    options: Spark's other reader options, e.g. ``maxOffsetsPerTrigger``, and the consumer's as
        ``kafka.…``; logins and certificates also by librdkafka's names, as a Kafka sink has them
        (``kafka.sasl.username``, ``kafka.ssl.ca.location``). ``failOnDataLoss`` is true unless set
        here: rows deleted unread by Kafka stop the job. ``kafka.max.poll.records`` is 10000 and
        ``kafka.fetch.max.wait.ms`` 20 unless set here: Kafka's own defaults slow Spark's reader
        down.

    Raises ConfigurationError.
    """

    bootstrap_servers: str
    topics: str | Sequence[str] | None = None
    pattern: str | None = None
    starting_offsets: str | datetime | Mapping[str, Mapping[int, int]] = "earliest"
    ending: str = "never"
    group_id: str | None = None
    isolation_level: str = "read_committed"
    options: Mapping[str, object] = field(default_factory=dict, repr=False)  # may hold passwords
    value_format: str | None = None
    schema_registry: Mapping[str, Any] | None = field(default=None, repr=False)  # its login
    value_schema: int | str | None = None
    subject: str | None = None
    on_bad_row: str = "fail"
    replayable: ClassVar[bool] = True
    """Kafka keeps the rows between two offsets, for as long as its retention says."""

    def __post_init__(self) -> None:
        servers = self.bootstrap_servers
        if not isinstance(servers, str) or not all(
            host and port.isdecimal() and int(port) < 65536
            for host, _, port in (part.strip().rpartition(":") for part in servers.split(","))
        ):
            raise ConfigurationError(
                f"KafkaSource: bootstrap_servers is {servers!r}; give 'host:port', several with "
                "commas between"
            )
        if (self.topics is None) == (self.pattern is None):
            raise ConfigurationError(
                f"KafkaSource at {servers}: topics is {self.topics!r} and pattern is "
                f"{self.pattern!r}; give exactly one of them"
            )
        if self.topics is not None:
            topics = (self.topics,) if isinstance(self.topics, str) else self.topics
            if (
                not isinstance(topics, Sequence)
                or not topics
                or not all(map(is_topic, topics))
                or len(set(topics)) < len(topics)
            ):
                raise ConfigurationError(
                    f"KafkaSource at {servers}: topics is {self.topics!r}; give one topic's name, "
                    f"or a list of names, each once; a name has {TOPIC_NAMES}"
                )
            object.__setattr__(self, "topics", tuple(topics))
        elif not isinstance(self.pattern, str) or not self.pattern:
            raise ConfigurationError(
                f"KafkaSource at {servers}: pattern is {self.pattern!r}; give a regular "
                "expression such as 'clicks-.*'"
            )
        self._starting_options()
        check_ending(self.ending, self._name)
        if self.group_id is not None and (not isinstance(self.group_id, str) or not self.group_id):
            raise ConfigurationError(
                f"{self._name}: group_id is {self.group_id!r}; give text, or leave it out"
            )
        one_of(self.isolation_level, _ISOLATION_LEVELS, f"{self._name}: isolation_level")
        options = checked_options(self.options, self._name, _OWNED, _OWNED_PREFIXES)
        object.__setattr__(self, "options", to_java(options, self._name))
        self._values()

    def describe(self) -> str:
        """Return the topics, and the isolation level if it is not the safe one."""
        text = (
            f"Kafka topics {', '.join(self.topics)}"
            if self.topics is not None
            else f"Kafka topics like {self.pattern}"
        )
        return text if self.isolation_level == "read_committed" else f"{text} (read_uncommitted)"

    def reader(self) -> StreamReader:
        """Return Spark's Kafka reader with these settings."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "kafka.isolation.level": self.isolation_level,
            **self._starting_options(),
        }
        if self.topics is not None:
            options["subscribe"] = ",".join(self.topics)
        else:
            options["subscribePattern"] = str(self.pattern)
        if self.group_id is not None:
            options["groupIdPrefix"] = self.group_id
        given = {name.lower() for name in self.options}
        options.update({n: value for n, value in _DEFAULTS.items() if n.lower() not in given})
        options.update({name: str(value) for name, value in self.options.items()})
        return StreamReader("kafka", options)

    def create_decoder(self) -> RegistryDecoder | None:
        """See `DecodedSource`."""
        values = self._values()
        return None if values is None else values.decoder()

    def create_offset_committer(self, jvm: Any) -> KafkaGroupOffsets | None:
        """Return the committer of offsets to `group_id`; None without one."""
        if self.group_id is None:
            return None
        return KafkaGroupOffsets(jvm, self.reader().options, self.group_id)

    def inspect_source(self, uid: str, jvm: Any, tolerated_downtime_s: float) -> list[Finding]:
        """See `InspectedSource`."""
        reading = KafkaReading(self.reader().options)
        return reading.inspect_source(uid, jvm, tolerated_downtime_s)

    def _values(self) -> RegistryValues | None:
        """Return how values are encoded, None for plain bytes; raises ConfigurationError."""
        if self.value_format is None:
            given = {
                "schema_registry": self.schema_registry is not None,
                "value_schema": self.value_schema is not None,
                "subject": self.subject is not None,
                "on_bad_row": self.on_bad_row != "fail",
            }
            for setting in (name for name, is_given in given.items() if is_given):
                raise ConfigurationError(
                    f"{self._name}: {setting} is given and value_format is None; give "
                    "value_format=, or leave it out"
                )
            return None
        return RegistryValues(
            self._name,
            tuple(self.topics or ()),
            self.value_format,
            self.schema_registry,  # type: ignore[arg-type]  # None is refused there
            self.subject,
            self.value_schema,
            self.on_bad_row,
        )

    @property
    def _name(self) -> str:
        return f"KafkaSource {self.pattern or ', '.join(self.topics or ())}"

    def _starting_options(self) -> dict[str, str]:
        """Return Spark's options for `starting_offsets`; raises ConfigurationError."""
        start = self.starting_offsets
        if start in ("earliest", "latest"):
            return {"startingOffsets": str(start)}
        if isinstance(start, Mapping):
            return {"startingOffsets": self._offsets_json(start)}
        moment = moment_of(start) if isinstance(start, str) else start
        if not isinstance(moment, datetime):
            raise ConfigurationError(
                f"{self._name}: starting_offsets is {start!r}; give 'earliest', 'latest', a moment "
                "such as '2026-01-31T08:00:00Z' or a datetime, or {topic: {partition: offset}}"
            )
        if moment.utcoffset() is None:
            raise ConfigurationError(
                f"{self._name}: starting_offsets is {start!r}, a moment without a time zone; "
                "add it: 'Z' or '+02:00' to text, tzinfo to a datetime"
            )
        return {
            "startingTimestamp": str(kafka_time_ms(moment)),
            # Else a partition without a row after that moment would fail the query.
            "startingOffsetsByTimestampStrategy": "latest",
        }

    def _offsets_json(self, start: Mapping[str, Mapping[int, int]]) -> str:
        by_topic: dict[str, dict[str, int]] = {}
        for topic, offsets in start.items():
            good = isinstance(topic, str) and isinstance(offsets, Mapping) and bool(offsets)
            for partition, offset in offsets.items() if isinstance(offsets, Mapping) else ():
                good &= _is_whole(partition, -1, 2**31) and _is_whole(offset, -3, 2**63)
            if not good or not isinstance(offsets, Mapping):
                raise ConfigurationError(
                    f"{self._name}: starting_offsets has {topic!r}: {offsets!r}; give "
                    "{topic: {partition: offset}} with whole numbers, -2 for earliest, "
                    "-1 for latest"
                )
            by_topic[str(topic)] = {str(p): o for p, o in offsets.items()}
        if not by_topic or (self.topics is not None and set(by_topic) != set(self.topics)):
            raise ConfigurationError(
                f"{self._name}: starting_offsets names the topics {sorted(by_topic)}; give every "
                "partition of every topic that is read, and no others"
            )
        return json.dumps(by_topic)


def _is_whole(value: object, above: int, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and above < value < below

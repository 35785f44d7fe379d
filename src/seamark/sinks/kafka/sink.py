"""`KafkaSink`: the user's configuration, checked when it is built."""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from seamark.api.checks import one_of
from seamark.contracts import places
from seamark.contracts.dead_letters import dead_letters_as_json
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import SinkContext, TwoPhaseCommitSink, WriterContext
from seamark.model import schema_registry
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding, FindingCode
from seamark.model.guarantee import SinkWay
from seamark.model.kafka_options import TOPIC_NAMES, is_topic
from seamark.model.schema import Schema
from seamark.sinks.internal.columns import column_names
from seamark.sinks.internal.servers import shown
from seamark.sinks.kafka import (
    avro_schema,
    java_client,
    options,
    preflight,
    read_back,
)
from seamark.sinks.kafka import committable as committables
from seamark.sinks.kafka.broker import BrokerConnection
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.committer import KafkaCommitter
from seamark.sinks.kafka.producer import ProducerConfig
from seamark.sinks.kafka.producer_pool import PoolKey, ProducerPool, pool_for
from seamark.sinks.kafka.record_columns import RecordColumns
from seamark.sinks.kafka.schema_registry import register
from seamark.sinks.kafka.selective_writer import SelectiveKafkaWriter
from seamark.sinks.kafka.topic_facts import TopicFacts
from seamark.sinks.kafka.transactional_id import capped, owner
from seamark.sinks.kafka.value_forms import FORMS, ValueForm
from seamark.sinks.kafka.writer import KafkaWriter

_BROKER = re.compile(
    r"(?:(?:SASL_)?(?:PLAINTEXT|SSL)://)?(?:\[[^]\s]+\]|[^]\[\s:;/]+)(?::(\d+))?", re.IGNORECASE
)
"""As librdkafka takes one; with another scheme it would look for a host of that name."""
_FORMATS = " or ".join(map(repr, ("json", *FORMS)))
_LONGEST_TIMEOUT_S = 2**31 / 1000 - 1


def no_prefix(sink: str, prefix: object) -> Finding:
    """Return the finding of a sink for exactly-once without a prefix."""
    return Finding(
        FindingCode.KF001,
        sink,
        f"delivery_guarantee is 'exactly-once' but transactional_id_prefix is {prefix!r}",
        "give a prefix that no other job on this cluster uses, or take "
        "delivery_guarantee='at-least-once'",
    )


def timeout_too_short(sink: "KafkaSink", context: SinkContext) -> Iterator[Finding]:
    """The broker may abort a transaction before its epoch is committed. A transaction must outlive
    the longest possible wait for its commit; with a spool, one checkpoint interval."""
    needed = {"checkpoint interval": context.checkpoint_interval_s}
    if not sink.spool:
        needed["timeout"] = context.checkpoint_timeout_s
        needed["restart delay"] = context.restart_delay_s
    found_s, needed_s = sink.transaction_timeout_s, sum(needed.values())
    if not math.isinf(needed_s) and found_s <= needed_s:
        parts = " + ".join(f"{name} {value:g}s" for name, value in needed.items())
        minutes = int(needed_s // 60) + 1
        line = "spool=True" if minutes > 15 else f'transaction_timeout="{minutes}min"'
        yield Finding(
            FindingCode.KF004,
            f"sink `{context.sink_uid}`",
            f"transaction timeout {found_s:g}s is not above {parts} = {needed_s:g}s, and the "
            "broker would abort the rows of an epoch that is decided later",
            f"raise transaction_timeout above {needed_s:g}s (and the broker's "
            "transaction.max.timeout.ms, 15min by default), lower CheckpointConfig timeout, or "
            f"give KafkaSink spool=True: KafkaSink(…, {line}), or of write_stream "
            f".option({', '.join(_as_option(line))})",
        )


def _as_option(argument: str) -> list[str]:
    name, _, value = argument.partition("=")
    return [f'"{name}"', "True" if value == "True" else value]


def _is_broker(text: str) -> bool:
    found = _BROKER.fullmatch(text.strip())
    return found is not None and int(found[1] or 0) < 65536


@dataclass(frozen=True, repr=False)
class KafkaSink(TwoPhaseCommitSink[KafkaCommittable]):
    """Writes rows to Kafka, exactly-once by two-phase commit, or at-least-once.

    Takes the columns of Spark's own Kafka sink: `value` (string or binary), and optionally `key`
    (the same types), `topic` (string; `topic=` comes before it), `partition` (int; null: by the
    key) and `headers` (``array<struct<key:string,value:binary>>``); others are left out. Or it
    makes key and value:

    `key`: the key's column: string, binary, or a whole number, decimal, boolean or date as text.
    Several columns make a JSON object.
    `value_format`: ``"json"``, or by a registry ``"avro"``, ``"protobuf"`` or ``"json-schema"``:
    the value is an object of the columns named by `value`. Without `value` it holds all columns but
    `key` (unless `key=` is given), `topic`, `partition` and `headers`, and these keep their
    meaning. Without a format `value` may name one string or binary column.
    `schema_registry`: for those: settings of Confluent's registry client, e.g.
    ``{"url": "http://host:8081"}`` (credentials are never shown). The sink registers the schema at
    the start, as ``<topic>-value``.
    `value_schema`: for ``"avro"``: the schema as JSON text; by default made from the columns.

    `transactional_id_prefix`: needed for exactly-once; begins every transactional id, and belongs
    to one job on a cluster. The ids let recovery find and end lingering transactions.
    `transaction_timeout`: the broker aborts a transaction left open for this long. An epoch decided
    but not committed by then loses its rows. So give more than checkpoint interval + timeout + the
    restart strategy's longest delay (checked at the start), more than the job's longest possible
    downtime, and at most the broker's `transaction.max.timeout.ms`.
    `spool`: also keeps the rows in the checkpoint until their commit is confirmed. A transaction
    timed out by the broker is then written again instead of being lost.
    `producer_options`: librdkafka's settings, e.g. ``{"compression.type": "zstd"}``, and the
    credentials (never shown). Java's names are understood, also with ``kafka.`` before them, so the
    options of a Kafka source serve: ``sasl.jaas.config`` for PLAIN and SCRAM, and trust and key
    stores of type PEM.
    """

    bootstrap_servers: str
    topic: str | None = None
    delivery_guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    transactional_id_prefix: str | None = None
    transaction_timeout: Duration = "15min"
    producer_options: Mapping[str, object] = field(default_factory=dict)
    key: str | Sequence[str] = ()
    value: str | Sequence[str] = ()
    value_format: Literal["json", "avro", "protobuf", "json-schema"] | None = None
    value_schema: str | None = None
    schema_registry: Mapping[str, Any] | None = None
    spool: bool = False
    transaction_timeout_s: float = field(default=0.0, init=False, compare=False)
    # The schema's id at the registry, and the topic's limit of a batch in bytes, by (job id, sink
    # uid). The driver learns them before the first epoch; each task gets them with the sink.
    _schema_ids: dict[tuple[str, str], int] = field(default_factory=dict, init=False, compare=False)
    _largest: dict[tuple[str, str], int] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        name = self._name
        servers = self.bootstrap_servers
        if not isinstance(servers, str) or not all(map(_is_broker, servers.split(","))):
            raise ConfigurationError(
                f"{name}: bootstrap_servers is {servers!r}; give text, 'localhost:9092', several "
                "brokers with commas between"
            )
        if self.topic is not None and not is_topic(self.topic):
            raise ConfigurationError(
                f"{name}: topic is {self.topic!r}, which is no name of a Kafka topic: use "
                f"{TOPIC_NAMES}"
            )
        one_of(
            self.delivery_guarantee,
            ("exactly-once", "at-least-once"),
            f"{name}: delivery_guarantee",
        )
        if self.delivery_guarantee == "exactly-once":
            prefix = self.transactional_id_prefix
            if not isinstance(prefix, str) or not prefix.strip():
                raise ConfigurationError(no_prefix(name, prefix))
        timeout_s = seconds(self.transaction_timeout, f"{name}: transaction_timeout")
        if not 1 <= timeout_s <= _LONGEST_TIMEOUT_S:
            raise ConfigurationError(
                f"{name}: transaction_timeout is {self.transaction_timeout!r}; give at least 1s "
                "and at most the broker's transaction.max.timeout.ms (15min by default)"
            )
        object.__setattr__(self, "transaction_timeout_s", timeout_s)
        if not isinstance(self.spool, bool) or (self.spool and not self.exactly_once):
            raise ConfigurationError(
                f"{name}: spool is {self.spool!r} and delivery_guarantee is "
                f"{self.delivery_guarantee!r}; spool=True is for 'exactly-once' alone, where a "
                "transaction can be lost"
            )
        # A copy: later changes to the caller's dictionary have no effect here.
        texts = options.checked(self.producer_options, name)
        object.__setattr__(self, "producer_options", texts)
        for setting in ("key", "value"):
            given = getattr(self, setting)
            names = (given,) if isinstance(given, str) else given
            columns = column_names(names, f"{name}: {setting}", in_order=True)
            object.__setattr__(self, setting, columns)
        self._check_format()

    def _check_format(self) -> None:
        name, format_ = self._name, self.value_format
        if format_ not in (None, "json", *FORMS):
            raise ConfigurationError(
                f"{name}: value_format is {format_!r}; give {_FORMATS}, or leave it out and select "
                "a column `value`"
            )
        if format_ is None and len(self.value) > 1:
            raise ConfigurationError(
                f"{name}: value names the columns {', '.join(self.value)}, and value_format is "
                'None; give value_format="json" or "avro" to make one value of them'
            )
        if format_ in FORMS:
            if self.topic is None:
                raise ConfigurationError(
                    f"{name}: value_format is {format_!r} and topic is None; give topic=, after "
                    "which the schema is named at the registry"
                )
            registry = schema_registry.checked(self.schema_registry, name, format_)
            object.__setattr__(self, "schema_registry", registry)
        for_formats = {"schema_registry": tuple(FORMS), "value_schema": ("avro",)}
        for setting, formats in for_formats.items():
            if getattr(self, setting) is not None and format_ not in formats:
                raise ConfigurationError(
                    f"{name}: {setting} is given and value_format is {format_!r}; it is for "
                    f"{' and '.join(formats)} only: leave it out"
                )
        if self.value_schema is not None:
            avro_schema.check_text(self.value_schema, name)

    @property
    def _name(self) -> str:
        return f"KafkaSink {self.topic!r}" if self.topic else "KafkaSink"

    @property
    def option_texts(self) -> dict[str, str]:
        """The `producer_options`, with their secrets."""
        return {name: str(value) for name, value in self.producer_options.items()}

    @property
    def exactly_once(self) -> bool:
        """Whether rows go through transactions."""
        return self.delivery_guarantee == "exactly-once"

    def __repr__(self) -> str:
        return shown(
            self,
            producer_options={n: options.shown(n, text) for n, text in self.option_texts.items()},
            schema_registry=schema_registry.shown(self.schema_registry or {}),
        )

    output_modes = ("append", "update", "complete")  # as Spark's own: a topic holds every change

    @property
    def real_time(self) -> bool:  # type: ignore[override]
        """See `TwoPhaseCommitSink`."""
        return True

    @property
    def way(self) -> SinkWay:
        """See `TwoPhaseCommitSink`."""
        return SinkWay.TWO_PHASE_COMMIT if self.exactly_once else SinkWay.NONE

    def describe(self) -> str:
        """See `TwoPhaseCommitSink`."""
        return f"Kafka topic {self.topic}" if self.topic else "Kafka, the topic of each row"

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`: the topic, and the prefix."""
        topic = [places.kafka_topic(self.bootstrap_servers, self.topic)] if self.topic else []
        if not self.exactly_once:
            return topic
        prefix = places.kafka_prefix(self.bootstrap_servers, self.transactional_id_prefix or "")
        return [*topic, prefix]

    @property
    def spark_formats(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        return ("avro",) if self.value_format == "avro" else ()

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """See `TwoPhaseCommitSink`. Returns key and value first, then the other columns present."""
        return self._columns.select_expressions(schema)

    @property
    def _columns(self) -> RecordColumns:
        return RecordColumns(
            self._name,
            self.topic,
            tuple(self.key),
            tuple(self.value),
            self.value_format,
            self.value_schema,
        )

    def check_transaction_scope(self, context: SinkContext) -> None:
        """See `TwoPhaseCommitSink`. A transaction must outlive the longest possible wait for its
        commit; with a spool, one checkpoint interval."""
        if not self.exactly_once:
            return
        for finding in timeout_too_short(self, context):
            raise ConfigurationError(finding)

    def connection(self) -> BrokerConnection:
        """Return a connection to the sink's brokers, which opens at its first use."""
        return BrokerConnection(self.bootstrap_servers, self.option_texts)

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """See `InspectedSink`."""
        with contextlib.closing(self.connection()) as broker:
            facts = preflight.ask(self, context, broker, readers=True)
            return list(preflight.findings(self, context, facts))

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        """See `ReadableSink`: as readers on read_committed do."""
        with contextlib.closing(self.connection()) as broker:
            yield from read_back.read(self, asked, broker)

    def create_writer(self, context: WriterContext) -> KafkaWriter:
        """See `TwoPhaseCommitSink`. Cheap: the first row takes a producer."""
        return KafkaWriter(context, *self._producing(context))

    def create_selective_writer(self, context: WriterContext) -> SelectiveKafkaWriter:
        """See `SelectiveSink`. At the first row the writer asks for the topic's limits."""
        return SelectiveKafkaWriter(context, *self._producing(context))

    def _producing(
        self, context: WriterContext
    ) -> tuple[
        ProducerConfig,
        Callable[[ProducerConfig, bool], ProducerPool],
        ValueForm | None,
        int | None,
    ]:
        prefix = self.transactional_id_prefix if self.exactly_once else None

        def pool(config: ProducerConfig, by_row: bool) -> ProducerPool:
            return pool_for(
                PoolKey(
                    config=config,
                    prefix=capped(prefix) if prefix is not None else None,
                    owner=owner(context.job_id, context.sink_uid),
                    generation=context.generation,
                    by_row=by_row,
                )
            )

        of = context.job_id, context.sink_uid
        schema_id, form = self._schema_ids.get(of), FORMS.get(self.value_format or "")
        config = self.producer_settings(f"sink `{context.sink_uid}`")
        # Java's producer divides a batch that is refused for its size; librdkafka does not.
        config = config.capped(self._largest.get(of), "batch.size")
        return config, pool, form, schema_id

    def jvm_writer(self, job_id: str, sink_uid: str, generation: int) -> Mapping[str, Any] | None:
        """See `JvmWrittenSink`. A subclass may write in its own way, so it stays with Python."""
        if type(self) is not KafkaSink:
            return None
        return java_client.description(self, job_id, sink_uid, generation)

    def jvm_committable(self, transaction: Mapping[str, Any]) -> KafkaCommittable:
        """See `JvmWrittenSink`."""
        rows = {int(partition): count for partition, count in transaction["rows"].items()}
        return KafkaCommittable(**{**transaction, "rows": {self.topic or "": rows}})

    def from_dead_letters(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """See `DeadLetterFormat`: the key is the uid of the sink that refused the row, the value is
        the letter as a JSON object."""
        if self.topic is None:
            raise ConfigurationError(
                f"{self._name} has no topic=, and a dead letter names none; give it one"
            )
        if self.value_format in FORMS:
            raise ConfigurationError(
                f"{self._name}: value_format is {self.value_format!r}, and dead letters are plain "
                "JSON; leave it out"
            )
        return pa.record_batch(
            {
                "key": letters.column("sink").cast(pa.binary()),
                "value": pa.array(dead_letters_as_json(letters), pa.string()).cast(pa.binary()),
            }
        )

    def learn_limit(self, context: SinkContext, topics: Mapping[str, TopicFacts]) -> None:
        """Keep the topic's limit of a batch for the tasks, if the brokers tell it."""
        topic = topics.get(self.topic or "")
        if topic is not None and topic.largest_bytes is not None:
            self._largest[context.job_id, context.sink_uid] = topic.largest_bytes

    def register_schema(self, context: SinkContext) -> None:
        """Register the schema of the values, if there is one, and keep its id for the tasks.
        Called by the committer's preflight. Raises PreflightError."""
        text = self._columns.value_text(context.schema)
        if text is None or self.schema_registry is None:
            return
        kind, subject = FORMS[self.value_format or ""].kind, f"{self.topic}-value"
        self._schema_ids[context.job_id, context.sink_uid] = register(
            text, kind, subject, self.schema_registry, f"sink `{context.sink_uid}`"
        )

    def producer_settings(self, name: str) -> ProducerConfig:
        """Return the configuration of all producers of this sink; `name` names it in errors."""
        settings = options.producer_settings(self.bootstrap_servers, self.option_texts)
        settings.setdefault("client.id", "seamark")
        timeout = settings.get("message.timeout.ms") or settings["delivery.timeout.ms"]
        # librdkafka gives up a row earlier, by itself.
        stall_timeout_s = int(timeout) / 1000 + 10 if timeout.isdigit() else 130.0
        if self.exactly_once:
            limit_ms = int(self.transaction_timeout_s * 1000)
            settings["transaction.timeout.ms"] = str(limit_ms)
            # librdkafka reports the producer id in its statistics only.
            settings["statistics.interval.ms"] = "50"
            if timeout.isdigit() and "message.timeout.ms" in settings:
                settings["message.timeout.ms"] = str(min(int(timeout), limit_ms))
        return ProducerConfig(
            sink=name,
            topic=self.topic,
            settings=tuple(sorted(settings.items())),
            stall_timeout_s=stall_timeout_s,
        )

    def create_committer(self, context: SinkContext) -> KafkaCommitter:
        """See `TwoPhaseCommitSink`."""
        return KafkaCommitter(self, context)

    dump = staticmethod(committables.dump)
    load = staticmethod(committables.load)

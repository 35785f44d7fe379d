"""Checks the real brokers before any row is written.

`ask` collects the facts and changes nothing, the rules are pure.
"""

import difflib
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.model.errors import MissingDependencyError
from seamark.model.findings import Finding, FindingCode, Severity
from seamark.model.packages import install_command
from seamark.sinks.internal.servers import Findings
from seamark.sinks.kafka import msk_iam, native_library, options, topic_facts
from seamark.sinks.kafka.broker import BrokerConnection, UnreachableError
from seamark.sinks.kafka.topic_facts import LEAST_IN_SYNC, RETENTION, TopicFacts
from seamark.sinks.kafka.transactional_id import capped, owner, parse

if TYPE_CHECKING:
    from seamark.sinks.kafka.sink import KafkaSink

_log = logging.getLogger(__name__)

_WHY_TIMEOUT_S = 3.0
_LIMIT = "transaction.max.timeout.ms"
_LOG = "__transaction_state"
_ID_DENIED = 53
_NO_SUCH = re.compile(r'No such configuration property: "([^"]+)"')
TOPIC_APPEARS_S = 5.0
"""How long a broker may not know a topic just created at another broker; longest when busy."""


@dataclass(frozen=True)
class BrokerFacts:
    """The brokers' answers.

    refused, unreachable: librdkafka's reasons; if both are "", the other facts are known.
    limits_ms: ``transaction.max.timeout.ms`` of each broker that tells it.
    others: other jobs' open transactions under the prefix.
    uncommitted: consumer groups that were found beyond an open transaction, and where.
    """

    refused: str = ""
    unreachable: str = ""
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    limits_ms: tuple[int, ...] = ()
    ids_denied: bool = False
    others: tuple[str, ...] = ()
    uncommitted: Mapping[str, str] = field(default_factory=dict)


def findings(sink: "KafkaSink", context: SinkContext, facts: BrokerFacts) -> Findings:
    """Yield every finding; creates and changes nothing."""
    name = f"sink `{context.sink_uid}`"
    if facts.refused or facts.unreachable:  # then nothing else is known
        yield from not_usable(sink, name, facts)
        return
    rules = topic_unusable, transactions_unusable, too_few_replicas, reads_uncommitted
    for rule in rules:
        yield from rule(sink, name, facts)
    if sink.exactly_once and not sink.spool and math.isinf(context.checkpoint_timeout_s):
        yield Finding(
            FindingCode.KF004,
            name,
            "this query has no checkpoint timeout: rows of an epoch that takes longer than "
            f"transaction_timeout, {sink.transaction_timeout_s:g}s, can be lost",
            "give spool=True, or a timeout: write_stream(df, "
            "checkpoint=sm.CheckpointConfig(timeout=…))",
            Severity.WARNING,
        )


# --- facts


def ask(
    sink: "KafkaSink", context: SinkContext, broker: BrokerConnection, *, readers: bool = False
) -> BrokerFacts:
    """Ask librdkafka and the brokers. Sends only requests that describe, or that a broker refuses
    after it has checked the permission. `readers`: also ask for groups that read uncommitted rows.
    """
    if refused := _refused_options(sink, f"sink `{context.sink_uid}`"):
        return BrokerFacts(refused=refused)
    try:
        known = _topics(sink, broker)
        if not sink.exactly_once:
            return BrokerFacts(topics=known)
        return BrokerFacts(
            topics=known,
            limits_ms=_limits_ms(broker),
            ids_denied=_ids_denied(sink, broker),
            others=_others(sink, context, broker),
            uncommitted=_beyond(broker, known.get(sink.topic or "")) if readers else {},
        )
    except UnreachableError as error:
        why = _why_unreachable(sink, f"sink `{context.sink_uid}`") or str(error)
        return BrokerFacts(unreachable=options.redacted(why, sink.option_texts))


def _refused_options(sink: "KafkaSink", name: str) -> str:
    """Let librdkafka check the settings: it names an unknown one."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} needs confluent-kafka and kafka-python: {install_command('kafka')}"
        ) from error
    settings, _ = msk_iam.for_librdkafka(dict(sink.producer_settings(name).settings))
    if sink.exactly_once:
        settings["transactional.id"] = "seamark-preflight"  # never initialised
    try:
        confluent_kafka.Producer(settings)
    except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
        cause = error.args[0] if error.args else error
        text = cause.str() if hasattr(cause, "str") else str(cause)
        return options.redacted(text, sink.option_texts) + _nearest(text)
    return ""


def _nearest(refusal: str) -> str:
    """Return which setting of librdkafka's an unknown one was meant to be, "" if none is near."""
    unknown = _NO_SUCH.search(refusal)
    known = [*options.KNOWN, *native_library.settings()]
    near = difflib.get_close_matches(unknown[1], known, 1) if unknown else []
    return f"; did you mean {near[0]!r}?" if near else ""


def _why_unreachable(sink: "KafkaSink", name: str) -> str:
    """Ask librdkafka: it tells a refused password or certificate from an unreachable broker."""
    import confluent_kafka

    errors: list[Any] = []
    settings = msk_iam.for_confluent(dict(sink.producer_settings(name).settings))
    settings["error_cb"] = errors.append
    client = confluent_kafka.Producer(settings)
    try:
        client.list_topics(timeout=_WHY_TIMEOUT_S)
    except confluent_kafka.KafkaException:
        client.poll(0)
    codes = confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL
    return next((str(error.str()) for error in errors if error.code() in codes), "")


def _topics(sink: "KafkaSink", broker: BrokerConnection) -> dict[str, TopicFacts]:
    """Describe the sink's topic and the log of transactions, which a new cluster lacks."""
    names = [sink.topic] if sink.topic is not None else []
    deadline = time.monotonic() + TOPIC_APPEARS_S
    while True:
        facts = topic_facts.ask(broker, [*names, _LOG])
        missing = any(facts[name].error_code == topic_facts.UNKNOWN for name in names)
        if not missing or time.monotonic() > deadline:
            return {n: topic for n, topic in facts.items() if n in names or not topic.error_code}
        time.sleep(0.2)


def _limits_ms(broker: BrokerConnection) -> tuple[int, ...]:
    """Return every broker's limit of a transaction's timeout, of those that tell it."""
    nodes = list(map(str, broker.wire().nodes()))
    told = topic_facts.settings_of(broker, "BROKER", nodes, [_LIMIT])
    return tuple(settings[_LIMIT] for settings in told.values() if _LIMIT in settings)


def _ids_denied(sink: "KafkaSink", broker: BrokerConnection) -> bool:
    """Ask any broker to end a transaction that does not exist. It checks the permission first. A
    user without it is not shown any transaction either, and would leave its own open."""
    from kafka.protocol.producer.transaction import EndTxnRequest

    probe = f"{capped(sink.transactional_id_prefix or '')}-preflight"
    request = EndTxnRequest(
        transactional_id=probe, producer_id=0, producer_epoch=0, committed=False, max_version=3
    )
    answer = broker.ask(request, broker.wire().nodes()[0])  # of access control each tells alike
    return bool(answer.error_code == _ID_DENIED)


def _others(sink: "KafkaSink", context: SinkContext, broker: BrokerConnection) -> tuple[str, ...]:
    """Return the ids of open transactions under the sink's prefix that are another job's."""
    prefix = capped(sink.transactional_id_prefix or "")
    ours = owner(context.job_id, context.sink_uid).partition("-")[0]
    try:
        ids = {text: parse(text) for text in broker.open_transactions()}
    except UnreachableError as error:  # a warning's question must not refuse a start
        _log.info("the open transactions could not be looked at: %s", error)
        return ()
    return tuple(
        sorted(
            text
            for text, made in ids.items()
            if made and made.prefix == prefix and made.owner.partition("-")[0] != ours
        )
    )


def _beyond(broker: BrokerConnection, topic: TopicFacts | None) -> dict[str, str]:
    """Return the groups that have committed offsets beyond the start of an open transaction."""
    if topic is None or topic.error_code:
        return {}
    everywhere = [(topic.name, number) for number in range(topic.partitions)]
    try:
        limits = broker.read_limits(everywhere)
        held = [at for at in everywhere if limits[at].end > limits[at].stable]
        groups = broker.group_offsets(held) or {}
        limits = broker.read_limits(groups)  # after the groups: no limit ever falls
    except UnreachableError as error:  # a partition without a leader
        _log.info("the readers of topic %s could not be looked at: %s", topic.name, error)
        return {}
    return {
        group: f"offset {offset} of partition {at[1]}, whose last stable offset is "
        f"{limits[at].stable}"
        for at, offsets in groups.items()
        for group, offset in offsets.items()
        if offset > limits[at].stable
    }


# --- rules


def not_usable(sink: "KafkaSink", name: str, facts: BrokerFacts) -> Findings:
    """librdkafka refuses the settings, or no broker answers."""
    if facts.refused:
        yield Finding(
            FindingCode.SV007,
            name,
            f"producer_options are refused by librdkafka: {facts.refused}",
            "correct or leave out that option",
        )
    elif facts.unreachable:
        yield Finding(
            FindingCode.SV001,
            name,
            f"no broker answers at {sink.bootstrap_servers} ({facts.unreachable})",
            "see that the address is right and reachable from here, and that security.protocol "
            "and the sasl.* or ssl.* settings in producer_options are those of the broker's "
            "listener",
        )


def topic_unusable(sink: "KafkaSink", name: str, facts: BrokerFacts) -> Findings:
    """The topic is missing, or not this user's to write."""
    topic = facts.topics.get(sink.topic or "")
    if topic is None:
        return
    servers = sink.bootstrap_servers
    if topic.error_code == topic_facts.UNKNOWN:
        yield Finding(
            FindingCode.SV004,
            name,
            f"topic {topic.name!r} does not exist at {servers}",
            f"create it with kafka-topics.sh --bootstrap-server {servers} --create "
            f"--topic {topic.name} --partitions <n> --replication-factor <n>",
        )
    elif topic.error_code == topic_facts.DENIED:
        grant = "grant DESCRIBE and WRITE on it"
        yield Finding(FindingCode.SV003, name, f"not authorised for topic {topic.name!r}", grant)
    elif topic.error_code:
        found = f"the broker answers {topic.error_code} when asked for topic {topic.name!r}"
        yield Finding(FindingCode.SV002, name, found, "see the brokers' logs")
    elif "DESCRIBE" in topic.may and "WRITE" not in topic.may:
        found = f"not authorised to write topic {topic.name!r}"
        yield Finding(FindingCode.SV003, name, found, "grant WRITE on it")


def transactions_unusable(sink: "KafkaSink", name: str, facts: BrokerFacts) -> Findings:
    """The broker refuses transactions open for so long, the user may not open any under the prefix,
    or another job has some open under it."""
    prefix = sink.transactional_id_prefix or ""
    limit_s = min(facts.limits_ms, default=2**31) / 1000
    if sink.transaction_timeout_s > limit_s:
        yield Finding(
            FindingCode.KF005,
            name,
            f"transaction timeout {sink.transaction_timeout_s:g}s is above the broker's {_LIMIT} "
            f"of {limit_s:g}s",
            f"lower transaction_timeout to at most {limit_s:g}s, or raise {_LIMIT} at the broker",
        )
    topic = facts.topics.get(sink.topic or "")
    kept_ms = -1 if topic is None or topic.retention_ms is None else topic.retention_ms
    if 0 <= kept_ms < sink.transaction_timeout_s * 1000:
        yield Finding(
            FindingCode.KF005,
            name,
            f"transaction timeout {sink.transaction_timeout_s:g}s is above {RETENTION} of topic "
            f"{sink.topic!r}, {kept_ms / 1000:g}s: while the job is down, brokers delete the rows "
            "of a transaction that is committed later",
            f"raise {RETENTION} of the topic, or lower transaction_timeout",
            Severity.WARNING,
        )
    if facts.ids_denied:
        yield Finding(
            FindingCode.SV003,
            name,
            f"not authorised for transactional ids that begin with {prefix!r}",
            "grant WRITE on them, with the pattern type PREFIXED",
        )
    if facts.others:
        yield Finding(
            FindingCode.KF002,
            name,
            f"another job has open transactions under transactional_id_prefix {prefix!r}, such as "
            f"{facts.others[0]!r}: neither ends the other's, but if that job runs and writes this "
            "topic, readers get the rows of both",
            "see whether it is to run beside this one, and give each a prefix of its own",
        )


def too_few_replicas(sink: "KafkaSink", name: str, facts: BrokerFacts) -> Findings:
    """Rows, or the brokers' own record of transactions, are gone with one broker; or they are
    refused because too few replicas are in sync."""
    if lone := [repr(topic.name) for topic in facts.topics.values() if topic.replicas == 1]:
        yield Finding(
            FindingCode.KF006,
            name,
            f"partitions with 1 replica, in {', '.join(lone)}: what is committed is gone with the "
            "disk of one broker",
            "give each a replication factor of 3 (and min.insync.replicas 2)",
        )
    for topic in facts.topics.values():
        least = topic.least_in_sync
        if least is None or topic.error_code:
            continue
        if topic.in_sync < least:
            yield Finding(
                FindingCode.KF007,
                name,
                f"topic {topic.name!r} has a partition with {topic.in_sync} replicas in sync, and "
                f"{LEAST_IN_SYNC} is {least}: brokers refuse its rows",
                f"start the missing brokers, or lower {LEAST_IN_SYNC}",
                Severity.ERROR,
            )
        elif least < 2 <= topic.replicas:
            yield Finding(
                FindingCode.KF007,
                name,
                f"topic {topic.name!r} has {LEAST_IN_SYNC} {least}: a row is confirmed when one "
                "broker has it, and gone if that broker dies before the others have it",
                f"set {LEAST_IN_SYNC}=2 on the topic",
            )


def reads_uncommitted(sink: "KafkaSink", name: str, facts: BrokerFacts) -> Findings:
    """A consumer group has gone beyond an open transaction, as no read_committed reader can."""
    for group, where in sorted(facts.uncommitted.items()):
        yield Finding(
            FindingCode.SK003,
            name,
            f"consumer group {group!r} reads topic {sink.topic!r} with read_uncommitted (it has "
            f"committed {where}): it gets rows of aborted transactions, and then their repetition",
            "set isolation.level=read_committed in its consumers",
        )

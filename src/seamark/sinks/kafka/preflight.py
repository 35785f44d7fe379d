"""Checks the real brokers before any row is written; each failure has its own error."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import SinkContext
from seamark.model.errors import MissingDependencyError, PreflightError
from seamark.sinks.kafka import options
from seamark.sinks.kafka.broker import BrokerConnection, UnreachableError
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.transactional_id import capped

if TYPE_CHECKING:
    from seamark.sinks.kafka.sink import KafkaSink

_log = logging.getLogger(__name__)

_WHY_TIMEOUT_S = 3.0
_LIMIT = "transaction.max.timeout.ms"
TOPIC_APPEARS_S = 5.0
"""How long a broker may not know a topic just created at another broker; longest when busy."""


def check(sink: KafkaSink, context: SinkContext, broker: BrokerConnection) -> None:
    """Raise PreflightError for the first failed check; creates and changes nothing."""
    name = f"sink `{context.sink_uid}`"
    texts = sink.option_texts
    _check_options(sink, name, texts)
    try:
        broker.admin()
    except UnreachableError as error:
        why = _why_unreachable(sink, name) or str(error)
        raise PreflightError(
            f"{name}: no broker answers at {sink.bootstrap_servers} "
            f"({options.redacted(why, texts)}); see that the address is right and reachable "
            "from here, and that security.protocol and the sasl.* or ssl.* settings in "
            "producer_options are those of the broker's listener"
        ) from error
    if sink.topic is not None:
        _check_topic(sink.topic, name, sink, broker)
    if sink.exactly_once:
        _check_timeout(sink, name, broker)
        _check_ids(sink, name, broker)


def _check_options(sink: KafkaSink, name: str, texts: dict[str, str]) -> None:
    """Let librdkafka check the settings: it names an unknown one."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} needs confluent-kafka and kafka-python: pip install 'seamark[kafka]'"
        ) from error
    settings = dict(sink.producer_settings(name).settings)
    if sink.exactly_once:
        settings["transactional.id"] = "seamark-preflight"  # never initialised
    try:
        confluent_kafka.Producer(settings)
    except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
        cause = error.args[0] if error.args else error
        text = cause.str() if hasattr(cause, "str") else str(cause)
        raise PreflightError(
            f"{name}: producer_options are refused by librdkafka: {options.redacted(text, texts)}"
        ) from None


def _why_unreachable(sink: KafkaSink, name: str) -> str:
    """Ask librdkafka: it tells a refused password or certificate from an unreachable broker."""
    import confluent_kafka

    errors: list[Any] = []
    settings: dict[str, Any] = dict(sink.producer_settings(name).settings)
    settings["error_cb"] = errors.append
    client = confluent_kafka.Producer(settings)
    try:
        client.list_topics(timeout=_WHY_TIMEOUT_S)
    except confluent_kafka.KafkaException:
        client.poll(0)
    codes = confluent_kafka.KafkaError._AUTHENTICATION, confluent_kafka.KafkaError._SSL
    return next((str(error.str()) for error in errors if error.code() in codes), "")


def _check_topic(topic: str, name: str, sink: KafkaSink, broker: BrokerConnection) -> None:
    from kafka.errors import KafkaError

    deadline = time.monotonic() + TOPIC_APPEARS_S
    while True:
        try:
            found = broker.admin().describe_topics([topic])
        except (KafkaError, UnreachableError) as error:
            raise PreflightError(
                f"{name}: the brokers at {sink.bootstrap_servers} do not answer: {error}"
            ) from error
        code = found[0]["error_code"]
        if code != 3 or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if code == 3:
        raise PreflightError(
            f"{name}: topic {topic!r} does not exist at {sink.bootstrap_servers}; create it with "
            f"kafka-topics.sh --bootstrap-server {sink.bootstrap_servers} --create "
            f"--topic {topic} --partitions <n> --replication-factor <n>"
        )
    if code == 29:
        raise PreflightError(
            f"{name}: not authorised for topic {topic!r}; grant DESCRIBE and WRITE on it"
        )
    if code:
        raise PreflightError(f"{name}: the broker answers {code} when asked for topic {topic!r}")


def _check_timeout(sink: KafkaSink, name: str, broker: BrokerConnection) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

    timeout_ms = int(sink.transaction_timeout_s * 1000)
    try:
        admin = broker.admin()
        ids = [str(node.node_id) for node in admin._manager.cluster.brokers()]
        asked = [ConfigResource(ConfigResourceType.BROKER, node, [_LIMIT]) for node in ids]
        found = admin.describe_configs(asked, config_filter="all")
        nodes = [node[_LIMIT] for node in found["broker"].values()]
    except (KafkaError, UnreachableError, KeyError) as error:
        # Many clusters do not let a job read their settings, and answer without them. The first
        # task then meets the limit.
        why = "no permission to DESCRIBE_CONFIGS" if isinstance(error, KeyError) else error
        _log.warning("%s: %s could not be read (%s)", name, _LIMIT, why)
        return
    for node in nodes:
        limit_ms = int(node["value"])
        if timeout_ms > limit_ms:
            raise PreflightError(
                f"{name}: transaction timeout {timeout_ms / 1000:g}s is above the broker's "
                f"{_LIMIT} of {limit_ms / 1000:g}s; lower transaction_timeout to at most "
                f"{limit_ms / 1000:g}s, or raise {_LIMIT} at the broker"
            )


def _check_ids(sink: KafkaSink, name: str, broker: BrokerConnection) -> None:
    """Ask the broker to end a transaction that does not exist: it checks the permission first. A
    user without it is not shown any transaction either, and would leave its own open."""
    from kafka.errors import TransactionalIdAuthorizationFailedError

    probe = KafkaCommittable(f"{capped(sink.transactional_id_prefix or '')}-preflight", 0, 0, {})
    code = broker.end([probe], commit=False)[0].code
    if code == 53 or isinstance(
        getattr(code, "__cause__", None), TransactionalIdAuthorizationFailedError
    ):
        raise PreflightError(
            f"{name}: not authorised for transactional ids that begin with "
            f"{sink.transactional_id_prefix!r}; grant WRITE on them, with the pattern type PREFIXED"
        )

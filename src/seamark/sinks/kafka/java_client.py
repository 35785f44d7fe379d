"""A `KafkaSink` for Java's client, in Spark's JVM (`spark/java/KafkaTasks.java`).

The settings are librdkafka's, as the user's are; a setting that Java's client does not have in the
same sense leaves the sink to the Python writer.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seamark.model.errors import ConfigurationError
from seamark.model.kafka_options import PREFIX, to_java
from seamark.sinks.kafka.committable import LAST_EPOCH_TO_USE
from seamark.sinks.kafka.producer import REMEDIES
from seamark.sinks.kafka.producer_pool import INIT_TIMEOUT_S
from seamark.sinks.kafka.row_producer import BAD_HEADER
from seamark.sinks.kafka.transactional_id import capped, owner

if TYPE_CHECKING:
    from seamark.sinks.kafka.sink import KafkaSink

_DEFAULTS = {
    "linger.ms": "5",
    "batch.size": "131072",
    "buffer.memory": "67108864",
    "delivery.timeout.ms": "120000",
}
_NUMBERS = {
    "linger.ms": "linger.ms",
    "queue.buffering.max.ms": "linger.ms",
    "batch.size": "batch.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
}
_TEXTS = ("compression.type", "client.id")
_LOGIN = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.endpoint.identification.algorithm",
)
_MET = ("acks", "request.required.acks", "enable.idempotence")
"""Checked when the sink was made, and the same here."""
_REQUEST_TIMEOUT_MS = 30_000
_BY_DEAD_LETTERS = '; to set single bad rows aside: job.sink(…, on_bad_row="dead_letter")'


def settings(sink: "KafkaSink") -> dict[str, str] | None:
    """Return the settings of Java's producer; None if Java's client cannot do as asked."""
    options, login = dict(_DEFAULTS), {}
    for name, text in sink.option_texts.items():
        if name in _NUMBERS and text.isdecimal():
            options[_NUMBERS[name]] = text
        elif name in _TEXTS:
            options[name] = text
        elif name in _LOGIN:
            login[PREFIX + name] = text
        elif name not in _MET:
            return None
    try:
        of_login = to_java(login, "sink")
    except ConfigurationError:
        return None
    options |= {name.removeprefix(PREFIX): text for name, text in of_login.items()}
    if "security.protocol" in options:
        options["security.protocol"] = options["security.protocol"].upper()
    # Java's client refuses what does not fit, and waits for the room of what is on its way.
    largest = max(int(options["batch.size"]), int(options.get("max.request.size", "0")))
    options["buffer.memory"] = str(max(int(options["buffer.memory"]), 2 * largest))
    delivery_ms = int(options["delivery.timeout.ms"])
    if sink.exactly_once:
        limit_ms = int(sink.transaction_timeout_s * 1000)
        options["transaction.timeout.ms"] = str(limit_ms)
        delivery_ms = min(delivery_ms, limit_ms)
    request_ms = min(_REQUEST_TIMEOUT_MS, delivery_ms - int(options["linger.ms"]))
    if request_ms <= 0:
        return None
    return options | {
        "bootstrap.servers": sink.bootstrap_servers,
        "acks": "all",
        "enable.idempotence": "true",
        "enable.metrics.push": "false",
        "max.block.ms": str(int(INIT_TIMEOUT_S * 1000)),
        "delivery.timeout.ms": str(delivery_ms),
        "request.timeout.ms": str(request_ms),
    }


def description(
    sink: "KafkaSink", job_id: str, sink_uid: str, generation: int
) -> Mapping[str, Any] | None:
    """Return it as `JvmWrittenSink.jvm_writer` does.

    A sink without ``topic=`` stays with Python: Java's client makes each topic that it is told of,
    where the broker allows it.
    """
    java = settings(sink)
    if sink.topic is None or sink.spool or sink.schema_registry is not None or java is None:
        return None
    prefix = capped(sink.transactional_id_prefix or "seamark")
    return {
        "uid": sink_uid,
        "topic": sink.topic,
        "settings": java,
        "transactional": sink.exactly_once,
        "ids": f"{prefix}-{owner(job_id, sink_uid)}",
        "generation": generation,
        "limit_s": int(INIT_TIMEOUT_S),
        "last_epoch": LAST_EPOCH_TO_USE,
        "remedies": {str(code): remedy for code, remedy in REMEDIES.items() if code > 0},
        "bad_header": BAD_HEADER,
        "set_aside": _BY_DEAD_LETTERS,
    }

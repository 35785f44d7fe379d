"""Topics for trials: made, filled and followed, on any Kafka that asks for no login.

`seamark topic` and ``seamark dev kafka --topic`` call these.
"""

import json
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from seamark.model.errors import OperationFailedError, UserError
from seamark.model.packages import load_driver
from seamark.sources.kafka_log import KafkaLog, LogBounds

PATIENCE_S = 10.0
_REMEDY = "is that its address? `seamark dev kafka --port 9092` starts one"
_TOPIC = re.compile(r"([\w.-]{1,249})(?::([1-9]\d{0,2}))?", re.ASCII)
_USERS, _PAGES = 20, ("/", "/cart", "/help", "/shop")

Message = Mapping[str, Any]
"""`key` and `value`, text, bytes or None; perhaps `partition`, and `timestamp` in ms since 1970."""


def parse_topic(text: str) -> tuple[str, int | None]:
    """Return name and partitions of ``clicks:4``; None without a number. Raises UserError."""
    if (match := _TOPIC.fullmatch(text)) is None:
        raise UserError(
            f"topic {text!r}: give a name of letters, digits, '.', '_' and '-', or NAME:PARTITIONS "
            "such as clicks:4, of at most 999"
        )
    return match[1], int(match[2]) if match[2] else None


def make_topics(
    servers: str,
    topics: Mapping[str, int | None],
    settings: Mapping[str, str] | None = None,
    partitions: int = 1,
) -> dict[str, int]:
    """Make the missing ones of these topics, with so many partitions (None: `partitions`) and the
    brokers' own default of replicas; return all of them with the partitions they have. Raises
    UserError for one that exists with other partitions, OperationFailedError if the brokers do not
    answer or refuse."""
    kafka = load_driver("confluent_kafka.admin", "the Kafka client is not installed", "kafka")
    with closing(_log(servers)) as log:
        there = {name: len(log.partitions(name)) for name in topics}
        for name, wanted in topics.items():
            if there[name] and wanted not in (None, there[name]):
                raise UserError(
                    f"topic {name!r} at {servers} has {there[name]} partitions, not {wanted}; "
                    "take another name"
                )
        missing = [name for name in topics if not there[name]]
        if missing:
            admin = kafka.AdminClient({"bootstrap.servers": servers, "log_level": 0})
            made = [
                kafka.NewTopic(name, topics[name] or partitions, -1, config=dict(settings or {}))
                for name in missing
            ]
            for name, future in admin.create_topics(made, request_timeout=25).items():
                try:
                    future.result(30)
                except kafka.KafkaException as error:
                    raise OperationFailedError(
                        f"topic {name!r} at {servers}: {error.args[0].str()}"
                    ) from None
        deadline = time.monotonic() + 30
        while missing and time.monotonic() < deadline:
            # A broker may not know a topic yet that was made a moment ago.
            there |= {name: len(log.partitions(name)) for name in missing}
            missing = [name for name in missing if not there[name]]
    return there


def produce(servers: str, topic: str, rows: Iterable[Message]) -> int:
    """Produce rows as they come, the rows of a key in order; return their number once the brokers
    have all of them. Raises UserError for a missing topic, OperationFailedError if a row is
    refused."""
    kafka = load_driver("confluent_kafka", "the Kafka client is not installed", "kafka")
    with closing(_log(servers)) as log:
        _partitions(log, servers, topic)
    refusals: list[Any] = []
    producer = kafka.Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "message.timeout.ms": 30_000,
            "log_level": 0,
            "on_delivery": lambda error, _: refusals.append(error) if error else None,
        }
    )
    count = 0
    try:
        for row in rows:
            while True:
                try:
                    producer.produce(topic, **row)
                    break
                except BufferError:
                    producer.poll(0.1)
                except kafka.KafkaException as error:  # it is too large
                    raise OperationFailedError(
                        f"topic {topic!r} at {servers}: row {count + 1}: {error.args[0].str()}"
                    ) from None
            producer.poll(0)
            count += 1
            if refusals:
                break
    finally:  # also at Ctrl-C
        producer.flush(35)
    if refusals:
        raise OperationFailedError(f"topic {topic!r} at {servers}: {refusals[0].str()}")
    return count


def follow(
    servers: str, topic: str, isolation_level: str, *, from_beginning: bool
) -> Iterator[Any]:
    """Yield a topic's messages, those of a partition in order, from its beginning or from now on,
    without an end; None at first, and now and then while there is none. Raises UserError for a
    missing topic."""
    with closing(_log(servers, isolation_level)) as log:
        partitions = [(topic, number) for number in _partitions(log, servers, topic)]
        bounds: Mapping[Any, LogBounds] = log.bounds(partitions)
        starts = {p: at.start if from_beginning else at.end for p, at in bounds.items()}
        yield None
        yield from log.follow(starts)


def made_up_clicks(rate: float) -> Iterator[Message]:
    """Yield clicks of made-up users, `rate` a second, without an end: the user is the key, the
    value JSON."""
    due = time.monotonic()
    while True:
        user = f"user-{random.randrange(_USERS)}"
        value = json.dumps({"user": user, "page": random.choice(_PAGES)})
        yield {"key": user, "value": value}
        due += 1 / rate
        time.sleep(max(due - time.monotonic(), 0))


def _log(servers: str, isolation_level: str = "read_committed") -> KafkaLog:
    return KafkaLog(servers, {"isolation.level": isolation_level}, PATIENCE_S, _REMEDY)


def _partitions(log: KafkaLog, servers: str, topic: str) -> list[int]:
    if partitions := log.partitions(topic):
        return partitions
    raise UserError(
        f"there is no topic {topic!r} at {servers}; make it: seamark topic create {topic}"
    )

"""What both producers do (`native_producer.py`, `row_producer.py`), and where a flush is proved.

Invariants of a producer, between `begin` and `close`:
- `sent` rows were handed to librdkafka, in the order in which they came;
- `rows` counts those among them that the broker has acknowledged, by topic and partition: one
  delivery report each, none of them sampled or assumed;
- the first report of a failure makes every later call raise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from seamark.model.errors import WriteRefusedError

if TYPE_CHECKING:
    import pyarrow as pa

Rows = dict[str, dict[int, int]]

_SLICE_S = 0.001
_NO_TOPIC = "create the topic, or mend the column `topic`; a sink creates none"


@dataclass(frozen=True)
class ProducerConfig:
    """All that a producer is made from. `sink` names the sink in errors; `topic` is None where
    each row names its own."""

    sink: str
    topic: str | None
    settings: tuple[tuple[str, str], ...] = field(repr=False)  # with the secrets
    stall_timeout_s: float


@dataclass(frozen=True)
class ProducerIdentity:
    """Who the broker thinks wrote: valid from `init_transactions` to the transaction's end."""

    producer_id: int
    epoch: int


class Producer(Protocol):
    """One librdkafka client, used by one thread at a time."""

    sent: int
    acknowledged: int
    rows: Rows

    def connect(self, timeout_s: float) -> None:
        """Find the brokers and the topic's partitions; raises WriteRefusedError if none answers."""
        ...

    def init_transactions(self, timeout_s: float) -> None:
        """Fence what had this transactional id, and have the broker give an identity."""
        ...

    def identity(self, timeout_s: float) -> ProducerIdentity:
        """Return what `init_transactions` was given. librdkafka tells it in its statistics alone,
        a moment later, so it is asked for when it is needed. Raises WriteRefusedError."""
        ...

    def begin(self) -> None:
        """Forget the counts, and begin a transaction if there is a transactional id."""
        ...

    def produce(self, batch: pa.RecordBatch) -> None:
        """Hand over every row, in order; waits while the queue is full. Raises WriteRefusedError
        for a row that is refused, or after `stall_timeout_s` without progress."""
        ...

    def serve(self, flush_s: float) -> None:
        """Take in what librdkafka reports; with `flush_s` > 0, press on with sending for so long,
        regardless of linger.ms. Raises WriteRefusedError if a delivery has failed."""
        ...

    def abort(self, timeout_s: float) -> None:
        """Drop what is queued and try to abort the transaction; raises nothing."""
        ...

    def close(self) -> None:
        """Free everything. Does not end an open transaction. May take a while; raises nothing."""
        ...


def is_transactional(config: ProducerConfig) -> bool:
    """Return whether a producer of this configuration writes in transactions."""
    return "transactional.id" in dict(config.settings)


def identity_in(statistics: str | bytes) -> ProducerIdentity | None:
    """Return who librdkafka's statistics say that the producer is; None if it does not know yet."""
    found = json.loads(statistics).get("eos", {})
    if found.get("producer_id", -1) < 0:
        return None
    return ProducerIdentity(found["producer_id"], found["producer_epoch"])


class Progress:
    """Raises WriteRefusedError when nothing was acknowledged for too long."""

    def __init__(self, producer: Producer, config: ProducerConfig) -> None:
        self._producer = producer
        self._config = config
        self._acknowledged = -1
        self._deadline = 0.0

    def check(self) -> None:
        """Call again and again while waiting."""
        now = time.monotonic()
        if self._producer.acknowledged != self._acknowledged:
            self._acknowledged = self._producer.acknowledged
            self._deadline = now + self._config.stall_timeout_s
        elif now > self._deadline:
            waiting = self._producer.sent - self._acknowledged
            raise WriteRefusedError(
                f"{self._config.sink}: the broker acknowledged nothing for "
                f"{self._config.stall_timeout_s:g} s while {waiting} rows of this task were "
                "waiting; see whether the partitions' leaders are up"
            )


def flush(producer: Producer, config: ProducerConfig, acknowledged: Callable[[], None]) -> None:
    """Return when every row that was sent is acknowledged; calls `acknowledged` now and then.

    Raises WriteRefusedError if a delivery has failed, or nothing moves.
    """
    progress = Progress(producer, config)
    while producer.acknowledged < producer.sent:
        producer.serve(_SLICE_S)
        acknowledged()
        progress.check()
    if producer.acknowledged != producer.sent:
        raise WriteRefusedError(
            f"{config.sink}: {producer.sent} rows were sent, but {producer.acknowledged} "
            "acknowledged: a row may have been written twice, so the epoch is not prepared"
        )


def refused(config: ProducerConfig, topic: str | None, count: int, why: str) -> WriteRefusedError:
    """Return the error for rows that were not taken."""
    rows = "1 row was" if count == 1 else f"{count} rows were"
    return WriteRefusedError(
        f"{config.sink}: {rows} refused by topic {topic or config.topic!r}: {why}"
    )


_REMEDIES = {
    10: "raise message.max.bytes in producer_options and max.message.bytes of the topic, "
    "or write smaller rows",
    29: "grant WRITE and DESCRIBE on the topic to the job's user",
    3: _NO_TOPIC,
    -188: _NO_TOPIC,
    53: "grant WRITE on the transactional ids that begin with transactional_id_prefix",
    -190: "the topic has fewer partitions than the column `partition` says",
}
"""What to do about an error, by its code (negative: librdkafka's own; else the broker's)."""


PURGED = (-152, -151)
"""What becomes of the rows of a transaction that has failed: the reason must be asked for."""
STATE = -172
"""librdkafka's answer to a call that the transaction's state forbids, if nothing has failed."""


def explained(code: int, text: str) -> str:
    """Return what librdkafka says of an error, and the remedy if one is known."""
    return f"{text}; {_REMEDIES[code]}" if code in _REMEDIES else text

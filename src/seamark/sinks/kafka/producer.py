"""The base of both producers (`native_producer.py`, `row_producer.py`), and the proof of a flush.

Invariants of a producer, between `begin` and `close`:
- `sent` rows were handed to librdkafka, in their order of arrival;
- `rows` counts the rows acknowledged by the broker, by topic and partition: from one delivery
  report each, none sampled or assumed;
- after the first report of a failure every later call raises.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from seamark.model.errors import WriteRefusedError

Rows = dict[str, dict[int, int]]
Groups = tuple[Any | None, list[tuple[int, int, int]]]
"""The order of rows (None: as they are), and (partition, start, end) of each group in that order; a
partition below 0 is chosen by librdkafka."""

_SLICE_S = 0.001
ASK_TIMEOUT_S = 10.0
"""How long the brokers may take to say which partitions a topic has, while a task writes."""
_LEAST_LIMIT_BYTES = 1000  # of librdkafka's message.max.bytes
_NO_TOPIC = "create the topic, or mend the column `topic`; a sink creates none"
NO_PARTITION = -190
REMEDIES = {
    10: "raise message.max.bytes in producer_options and max.message.bytes of the topic, or "
    "write smaller rows; if they are small, lower batch.size in producer_options below the topic's",
    32: "see whether the clock of this machine, or of the broker, is wrong, or raise the topic's "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    87: "a topic that is compacted takes no row without a key: give it one",
    29: "grant WRITE and DESCRIBE on the topic to the job's user",
    3: _NO_TOPIC,
    -188: _NO_TOPIC,
    53: "grant WRITE on the transactional ids that begin with transactional_id_prefix",
    NO_PARTITION: "the topic has fewer partitions than the column `partition` says",
}
"""The remedy for an error, by its code (negative: librdkafka's own; else the broker's)."""
PURGED = (-152, -151)
"""Codes for the rows of a failed transaction; the reason must be asked for separately."""
STATE = -172
"""librdkafka's answer to a call forbidden by the transaction's state, if nothing has failed."""


@dataclass(frozen=True)
class ProducerConfig:
    """The complete configuration of a producer. `sink` names the sink in errors; `topic` is None if
    each row names its own."""

    sink: str
    topic: str | None
    settings: tuple[tuple[str, str], ...] = field(repr=False)  # with the secrets
    stall_timeout_s: float

    def capped(self, largest_bytes: int | None, *names: str) -> "ProducerConfig":
        """Return it with these settings no larger than a topic's limit of a batch."""
        settings = dict(self.settings)
        cap = max(largest_bytes or 0, _LEAST_LIMIT_BYTES)
        for name in names if largest_bytes is not None else ():
            settings[name] = str(min(int(settings[name]), cap))
        return replace(self, settings=tuple(sorted(settings.items())))


@dataclass(frozen=True)
class ProducerIdentity:
    """The writer as the broker knows it, from `init_transactions` to the transaction's end."""

    producer_id: int
    epoch: int


class Producer(ABC):
    """One librdkafka client, used by one thread at a time."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._transactional = "transactional.id" in dict(config.settings)
        self._identity: ProducerIdentity | None = None
        self.sent = 0
        self.acknowledged = 0
        self.rows: Rows = {}
        self.last_groups: Groups | None = None
        """How `produce` has grouped its last batch; None if each row was sent by itself."""

    @abstractmethod
    def connect(self, timeout_s: float) -> None:
        """Find the brokers and the topic's partitions; raises WriteRefusedError if none answers."""

    @abstractmethod
    def init_transactions(self, timeout_s: float) -> None:
        """Fence the previous holder of this transactional id, and get an identity."""

    def identity(self, timeout_s: float) -> ProducerIdentity:
        """Return the identity given by `init_transactions`. librdkafka reports it a moment later,
        in its statistics only, so this waits for it on demand. Raises WriteRefusedError."""
        deadline = time.monotonic() + timeout_s
        while self._identity is None:
            self._poll(0.01)
            if time.monotonic() > deadline:
                raise WriteRefusedError(f"{self._config.sink}: no producer id in {timeout_s:g} s")
        return self._identity

    def _learn_identity(self, statistics: str | bytes) -> None:
        """Read the identity from librdkafka's statistics, if they have it by now."""
        state = json.loads(statistics).get("eos", {}) if self._identity is None else {}
        if state.get("producer_id", -1) >= 0:
            self._identity = ProducerIdentity(state["producer_id"], state["producer_epoch"])

    @abstractmethod
    def _poll(self, wait_s: float) -> None:
        """Take in librdkafka's reports; wait up to `wait_s` for the first one."""

    @abstractmethod
    def begin(self) -> None:
        """Forget the counts, and begin a transaction if there is a transactional id."""

    @abstractmethod
    def produce(self, batch: pa.RecordBatch) -> None:
        """Hand over every row, in order; waits while the queue is full. Raises WriteRefusedError
        for a refused row, or after `stall_timeout_s` without progress."""

    @abstractmethod
    def serve(self, flush_s: float) -> None:
        """Take in librdkafka's reports. With `flush_s` > 0, first send for up to that long,
        regardless of linger.ms. Raises WriteRefusedError if a delivery has failed."""

    @abstractmethod
    def abort(self, timeout_s: float) -> None:
        """Drop the queued rows and try to abort the transaction; raises nothing."""

    def _await_first(self, timeout_s: float) -> None:
        """Wait until the broker has one of the transaction's rows, if there are any.

        librdkafka ignores the answer to the registration of a partition that arrives after an
        abort has begun. If it was the first, the abort ends nothing, and the broker keeps an open
        transaction (https://github.com/confluentinc/librdkafka/issues/4849).
        """
        deadline = time.monotonic() + timeout_s
        with suppress(WriteRefusedError):  # the delivery has failed: nothing to wait for
            while self.sent and not self.acknowledged and time.monotonic() < deadline:
                self.serve(0.01)

    @abstractmethod
    def close(self) -> None:
        """Free everything. Does not end an open transaction. May take a while; raises nothing."""


class Progress:
    """Raises WriteRefusedError when nothing was acknowledged for too long."""

    def __init__(self, producer: Producer, config: ProducerConfig) -> None:
        self._producer = producer
        self._config = config
        self._acknowledged = -1
        self._deadline = 0.0

    def check(self) -> None:
        """Call this repeatedly while waiting."""
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
    """Return once every sent row is acknowledged; calls `acknowledged` now and then.

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
    """Return the error for refused rows."""
    rows = "1 row was" if count == 1 else f"{count} rows were"
    return WriteRefusedError(
        f"{config.sink}: {rows} refused by topic {topic or config.topic!r}: {why}"
    )


def explained(code: int, text: str) -> str:
    """Return librdkafka's text for an error, and the remedy if one is known."""
    return f"{text}; {REMEDIES[code]}" if code in REMEDIES else text

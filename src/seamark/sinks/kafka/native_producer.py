"""The fast producer: hands whole Arrow columns to librdkafka in one C call.

Delivery reports come as events, one per answer of the broker and with a count. Every row's
acknowledgement is thus counted at no cost per row. Rows are grouped by partition first
(`partitioner.py`). A full queue keeps the order: ``produce_batch`` refuses all messages after the
first one without room, so the rest is sent again from there.
"""

import ctypes
import time
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.model.errors import SeamarkError, WriteRefusedError
from seamark.sinks.kafka import msk_iam
from seamark.sinks.kafka import native_library as c
from seamark.sinks.kafka.partitioner import Partitioner, layout
from seamark.sinks.kafka.producer import (
    ASK_TIMEOUT_S,
    PURGED,
    STATE,
    Groups,
    Producer,
    ProducerConfig,
    Progress,
    explained,
    refused,
)

_EMPTY = ctypes.create_string_buffer(1)
_EMPTY_ADDRESS = ctypes.addressof(_EMPTY)
"""The address for an empty value: a null pointer would be a tombstone."""

_TOO_LARGE = 10


class NativeProducer(Producer):
    """See `producer.Producer`. Takes the columns key, value and, optionally, partition."""

    def __init__(self, library: Any, config: ProducerConfig) -> None:
        if config.topic is None:
            raise ValueError("the native producer writes to one topic")
        super().__init__(config)
        self._topic_name: str = config.topic
        self._library = library
        self._by_partition: dict[int, int] = {}
        self._failure: tuple[int, int] | None = None  # rows, first error code
        self._messages = np.zeros(0, c.MESSAGE)
        self._partitioner: Partitioner | None = None
        self._known_partitions = 0
        self._client = self._new_client()
        self._queue = library.queue_get_main(self._client)
        # Asks for the topic's metadata at once: the first row finds its leader known.
        self._topic = library.topic_new(self._client, self._topic_name.encode(), None)

    def _new_client(self) -> int:
        error = ctypes.create_string_buffer(1024)
        conf = self._library.conf_new()
        settings, self._ask_token = msk_iam.for_librdkafka(dict(self._config.settings))
        for name, value in settings.items():
            if self._library.conf_set(conf, name.encode(), value.encode(), error, len(error)):
                self._library.conf_destroy(conf)
                raise SeamarkError(f"{self._config.sink}: {error.value.decode()}")
        events = c.EVENT_DELIVERY | c.EVENT_ERROR | c.EVENT_STATISTICS
        self._library.conf_set_events(conf, events | (c.EVENT_TOKEN if self._ask_token else 0))
        client = self._library.new(c.PRODUCER, conf, error, len(error))
        if not client:
            self._library.conf_destroy(conf)
            raise SeamarkError(f"{self._config.sink}: {error.value.decode()}")
        if self._ask_token:
            self._give_token(client)
        return int(client)

    def _give_token(self, client: int) -> None:
        """Give librdkafka a token of ours: at the start, and when it asks for the next."""
        assert self._ask_token is not None
        why = ctypes.create_string_buffer(512)
        try:
            token, lifetime_s = self._ask_token()
            until_ms = int((time.time() + lifetime_s) * 1000)
            code = self._library.oauthbearer_set_token(
                client, token.encode(), until_ms, b"seamark", None, 0, why, len(why)
            )
            reason = why.value if code else b""
        except OSError as error:
            reason = str(error).encode()
        if reason:
            self._library.oauthbearer_set_token_failure(client, reason)

    def init_transactions(self, timeout_s: float) -> None:
        """See `producer.Producer`."""
        self._check(self._library.init_transactions(self._client, int(timeout_s * 1000)))

    def connect(self, timeout_s: float) -> None:
        """See `producer.Producer`. Without a connection init_transactions would sleep 500 ms.

        Asks twice: the first answer comes over the bootstrap connection, soon dropped; the second
        needs a lasting connection.
        """
        for _ in range(2):
            self._ask_partitions(timeout_s)

    def _ask_partitions(self, timeout_s: float) -> None:
        metadata = ctypes.c_void_p()
        code = self._library.metadata(
            self._client, 0, self._topic, ctypes.byref(metadata), int(timeout_s * 1000)
        )
        if code:
            raise WriteRefusedError(
                f"{self._config.sink}: no broker has answered within {timeout_s:g} s: "
                f"{self._text(code)}"
            )
        leaders = c.leaders(metadata.value)
        self._library.metadata_destroy(metadata)
        self._known_partitions = len(leaders)
        # Another partitioner in producer_options is left to librdkafka, and so is an unknown topic.
        if leaders and dict(self._config.settings).get("partitioner") == "murmur2_random":
            available = [partition for partition, leader in leaders.items() if leader >= 0]
            self._partitioner = Partitioner(len(leaders), available)

    def begin(self) -> None:
        """See `producer.Producer`."""
        self.serve(0)
        self.sent = self.acknowledged = 0
        self._by_partition = {}
        self.rows = {self._topic_name: self._by_partition}
        if self._transactional:
            self._check(self._library.begin_transaction(self._client))

    def produce(self, batch: pa.RecordBatch) -> None:
        """See `producer.Producer`."""
        key, value = _binary(batch.column(0)), _binary(batch.column(1))
        partitions = self._partitions(key, batch.column(2) if batch.num_columns > 2 else None)
        self.last_groups = order, groups = _grouped(partitions)
        if len(self._messages) < batch.num_rows:
            self._messages = np.zeros(batch.num_rows, c.MESSAGE)
        messages = self._messages[: batch.num_rows]
        _point_into(key, messages, "key", order)
        _point_into(value, messages, "value", order)
        # `key` and `value` own the bytes of the messages until librdkafka has a copy.
        for partition, start, end in groups:
            self._enqueue(partition, messages[start:end])
        self.serve(0)

    def _enqueue(self, partition: int, messages: Any) -> None:
        """Hand over messages for one partition, or `c.UNASSIGNED`, in order."""
        progress = Progress(self, self._config)
        while True:
            accepted = self._library.produce_batch(
                self._topic, partition, c.COPY, messages.ctypes.data, len(messages)
            )
            self.sent += accepted
            if accepted == len(messages):
                return
            self._check_refused(messages, accepted)
            messages = messages[accepted:]
            self._poll(0.005)
            self._raise_failure()
            progress.check()

    def _partitions(self, key: pa.Array, column: pa.Array | None) -> Any:
        """Return each row's partition: the column's, else by the key; `c.UNASSIGNED` leaves it to
        librdkafka."""
        given: Any = None
        if column is not None:
            given = column.fill_null(0).to_numpy(zero_copy_only=False)
            if given.max(initial=0) >= self._known_partitions:
                # The topic may have got more since: librdkafka itself asks every five minutes.
                self._ask_partitions(ASK_TIMEOUT_S)
        chosen = self._partitioner.of(key) if self._partitioner else None
        if chosen is None:
            chosen = np.full(len(key), c.UNASSIGNED, np.int32)
        if column is None:
            return chosen
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        bad = (given < 0) & valid
        if bad.any():
            raise refused(
                self._config, None, int(bad.sum()),
                f"the column `partition` is {int(given[bad][0])}; give a partition from 0, or null "
                "to have it chosen by the key",
            )  # fmt: skip
        return np.where(valid, given, chosen)

    def _check_refused(self, messages: Any, accepted: int) -> None:
        """Raise WriteRefusedError, unless all from `accepted` on met a full queue."""
        errors = messages["err"]
        other = np.flatnonzero((errors != 0) & (errors != c.QUEUE_FULL))
        if len(other):
            first = messages[other[0]]
            code = int(first["err"])
            why = self._text(code)
            if code == STATE:  # an earlier row has failed the transaction
                self.serve(0)
                code, why = self._transaction_error() or (code, why)
            elif code == _TOO_LARGE:
                size = int(first["value_len"]) + int(first["key_len"])
                why += f" (key and value have {size} bytes)"
            raise refused(self._config, None, len(other), explained(code, why))
        if errors[:accepted].any() or not errors[accepted:].all():
            raise WriteRefusedError(
                f"{self._config.sink}: librdkafka accepted rows after one that it refused, so "
                "their order is lost; report this with the version of confluent-kafka"
            )

    def serve(self, flush_s: float) -> None:
        """See `producer.Producer`."""
        if flush_s > 0:
            self._library.flush(self._client, max(1, int(flush_s * 1000)))
        self._poll(0)
        self._raise_failure()

    def _poll(self, wait_s: float) -> None:
        library, wait_ms = self._library, int(wait_s * 1000)
        while event := library.queue_poll(self._queue, wait_ms):
            match library.event_type(event):
                case c.EVENT_DELIVERY:
                    self._count(event)
                case c.EVENT_STATISTICS:
                    self._learn_identity(library.event_stats(event))
                case c.EVENT_TOKEN:
                    self._give_token(self._client)
            library.event_destroy(event)
            wait_ms = 0

    def _count(self, event: int) -> None:
        """Count one report. Its messages share one partition if delivered, and one error if not."""
        library = self._library
        count = library.event_message_count(event)
        error = library.event_error(event)
        if error:
            rows, code = self._failure or (0, error)
            self._failure = (rows + count, code)
        elif count:
            partition = int(c.message_at(library.event_message_next(event))["partition"])
            self._by_partition[partition] = self._by_partition.get(partition, 0) + count
            self.acknowledged += count

    def _raise_failure(self) -> None:
        fatal = ctypes.create_string_buffer(512)
        if self._failure is not None:
            rows, code = self._failure
            why = self._text(code)
            if code in PURGED and self._transactional:
                code, why = self._transaction_error() or (code, why)
            if self._library.fatal_error(self._client, fatal, len(fatal)):
                why += f" ({fatal.value.decode()})"
            raise refused(self._config, None, rows, explained(code, why))
        if self._library.fatal_error(self._client, fatal, len(fatal)):
            raise WriteRefusedError(
                f"{self._config.sink}: the producer cannot go on: {fatal.value.decode()}"
            )

    def _transaction_error(self) -> tuple[int, str] | None:
        """Return why the transaction has failed: librdkafka tells it when another begins."""
        error = self._library.begin_transaction(self._client)
        if not error:
            return None
        failure = self._library.error_code(error), self._library.error_string(error).decode()
        self._library.error_destroy(error)
        return None if failure[0] == STATE else failure

    def abort(self, timeout_s: float) -> None:
        """See `producer.Producer`."""
        deadline = time.monotonic() + timeout_s
        if self._transactional:
            self._await_first(timeout_s / 2)
        self._library.purge(self._client, c.PURGE_QUEUE | c.PURGE_IN_FLIGHT)
        if not self._transactional:
            return
        # abort_transaction waits for reports but does not serve them: take them in first.
        while self._library.outq_len(self._client) and time.monotonic() < deadline:
            self._poll(0.005)
        left_ms = max(1, int((deadline - time.monotonic()) * 1000))
        error = self._library.abort_transaction(self._client, left_ms)
        if error:
            self._library.error_destroy(error)

    def close(self) -> None:
        """See `producer.Producer`."""
        client, self._client = self._client, 0
        if client:
            self._library.topic_destroy(self._topic)
            self._library.queue_destroy(self._queue)
            self._library.destroy(client)

    def _text(self, code: int) -> str:
        return str(self._library.err2str(code).decode())

    def _check(self, error: int | None) -> None:
        if error:
            text = self._library.error_string(error).decode()
            why = explained(self._library.error_code(error), text)
            self._library.error_destroy(error)
            raise WriteRefusedError(f"{self._config.sink}: {why}")


def _binary(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column
    return column.cast(pa.large_binary() if "large" in str(column.type) else pa.binary())


def _grouped(partitions: Any) -> Groups:
    """Return the order grouping rows by partition, with each partition's rows in turn."""
    count = len(partitions)
    if (partitions == partitions[0]).all():
        return None, [(int(partitions[0]), 0, count)]
    if partitions.max() < 2**15:
        partitions = partitions.astype(np.int16)  # sorted by radix
    order = np.argsort(partitions, kind="stable")
    ordered = partitions[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist()]
    ends = [*starts[1:], count]
    return order, [(int(ordered[s]), s, e) for s, e in zip(starts, ends, strict=True)]


def _point_into(column: pa.Array, messages: Any, field: str, order: Any | None) -> None:
    """Point each message's `field` at the row's bytes in the Arrow buffers, and set its length.

    A null gets a null pointer, an empty value another one.
    """
    starts, lengths, data = layout(column)
    addresses = starts + (data.ctypes.data if len(data) else _EMPTY_ADDRESS)
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        addresses[null] = 0
        lengths[null] = 0
    messages[field] = addresses if order is None else addresses[order]
    messages[f"{field}_len"] = lengths if order is None else lengths[order]

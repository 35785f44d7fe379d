"""The general producer: row by row through the Python client, for rows with headers or with a topic
of their own, and where librdkafka cannot be called directly. It takes twice the CPU."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamark.model.errors import SeamarkError, WriteRefusedError
from seamark.sinks.internal.columns import not_utf8
from seamark.sinks.kafka import msk_iam, native_library, producer
from seamark.sinks.kafka.producer import Producer, ProducerConfig, Progress, explained, refused

BAD_HEADER = "a header is null, or its key is, or is not UTF-8; give each a key"
BAD_TOPIC = "the row's topic is not UTF-8; mend the column `topic`"


def with_bad_headers(batch: pa.RecordBatch) -> Any:
    """Return a mask of the rows for which `BAD_HEADER` is true."""
    rows = np.zeros(batch.num_rows, bool)
    if "headers" in batch.schema.names:
        headers = batch.column("headers")
        keys = pc.struct_field(pc.list_flatten(headers), "key")  # null where the struct is
        bad = not_utf8(keys) | keys.is_null().to_numpy(zero_copy_only=False)
        rows[pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)[bad]] = True
    return rows


class RowProducer(Producer):
    """See `producer.Producer`. Takes the columns key, value and any of topic, partition, headers,
    by name."""

    def __init__(self, config: ProducerConfig) -> None:
        confluent_kafka = native_library.driver()
        super().__init__(config)
        self._failure: tuple[int, Any, str | None] | None = None  # rows, first error, its topic
        self._fatal: Any = None
        settings = msk_iam.for_confluent(dict(config.settings))
        settings["stats_cb"] = self._learn_identity
        settings["error_cb"] = self._on_error
        try:
            self._client: Any = confluent_kafka.Producer(settings)
        except confluent_kafka.KafkaException as error:
            raise SeamarkError(f"{config.sink}: {error.args[0].str()}") from error

    def connect(self, timeout_s: float) -> None:
        """See `producer.Producer`."""
        # Twice, as in the native producer: without a lasting connection, init_transactions sleeps.
        for _ in range(2):
            self._call(self._client.list_topics, self._config.topic, timeout_s)

    def init_transactions(self, timeout_s: float) -> None:
        """See `producer.Producer`."""
        self._call(self._client.init_transactions, timeout_s)

    def begin(self) -> None:
        """See `producer.Producer`."""
        self.serve(0)
        self.sent = self.acknowledged = 0
        self.rows = {}
        if self._transactional:
            self._call(self._client.begin_transaction)

    def produce(self, batch: pa.RecordBatch) -> None:
        """See `producer.Producer`."""
        if self._config.topic is None and not_utf8(batch.column("topic")).any():
            raise WriteRefusedError(f"{self._config.sink}: {BAD_TOPIC}")
        if with_bad_headers(batch).any():
            raise WriteRefusedError(f"{self._config.sink}: {BAD_HEADER}")
        for row in batch.to_pylist():
            topic = self._config.topic or row.get("topic")
            if not topic:
                raise WriteRefusedError(
                    f"{self._config.sink}: a row has no topic: the column `topic` is "
                    f"{'null' if topic is None else 'empty'}; give each row a topic, or the sink a "
                    "topic="
                )
            arguments = {"key": row["key"], "value": row["value"]}
            if row.get("partition") is not None:
                if row["partition"] < 0:
                    raise refused(
                        self._config, topic, 1,
                        f"the column `partition` is {row['partition']}; give a partition from 0, "
                        "or null to have it chosen by the key",
                    )  # fmt: skip
                arguments["partition"] = row["partition"]
            if row.get("headers"):
                arguments["headers"] = [(h["key"], h["value"]) for h in row["headers"]]
            self._produce(topic, arguments)
        self.serve(0)

    def _produce(self, topic: str, arguments: dict[str, Any]) -> None:
        import confluent_kafka

        progress, asked = Progress(self, self._config), False
        while True:
            try:
                self._client.produce(topic, on_delivery=self._on_delivery, **arguments)
            except BufferError:  # the queue is full
                self._poll(0.005)
                self._raise_failure()
                progress.check()
            except confluent_kafka.KafkaException as error:
                why = error.args[0]
                if why.code() == producer.NO_PARTITION and not asked:
                    # It may be new: librdkafka itself asks every five minutes.
                    self._call(self._client.list_topics, topic, producer.ASK_TIMEOUT_S)
                    asked = True
                    continue
                if why.code() == producer.STATE:  # an earlier row has failed the transaction
                    self.serve(0)
                    why = self._transaction_error() or why
                raise refused(self._config, topic, 1, self._why(why)) from error
            else:
                self.sent += 1
                return

    def serve(self, flush_s: float) -> None:
        """See `producer.Producer`."""
        if flush_s > 0:
            self._client.flush(flush_s)
        else:
            self._poll(0)
        self._raise_failure()

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            rows, first, topic = self._failure or (0, error, message.topic())
            self._failure = (rows + 1, first, topic)
            return
        partitions = self.rows.setdefault(message.topic(), {})
        partitions[message.partition()] = partitions.get(message.partition(), 0) + 1
        self.acknowledged += 1

    def _poll(self, wait_s: float) -> None:
        self._client.poll(wait_s)

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self._fatal = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            rows, error, topic = self._failure
            error = self._transaction_error() if error.code() in producer.PURGED else error
            raise refused(self._config, topic, rows, self._why(error or self._failure[1]))
        if self._fatal is not None:
            raise WriteRefusedError(
                f"{self._config.sink}: the producer cannot go on: {self._fatal.str()}"
            )

    def _transaction_error(self) -> Any | None:
        """Return why the transaction has failed: librdkafka tells it when another begins."""
        import confluent_kafka

        if not self._transactional:
            return None
        try:
            self._client.begin_transaction()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != producer.STATE:
                return error.args[0]
        return None

    def _why(self, error: Any) -> str:
        return explained(error.code(), error.str())

    def abort(self, timeout_s: float) -> None:
        """See `producer.Producer`."""
        import confluent_kafka

        try:
            if self._transactional:
                self._await_first(timeout_s / 2)
            self._client.purge()
            if self._transactional:
                self._client.abort_transaction(timeout_s / 2)
        except confluent_kafka.KafkaException:
            pass  # best effort: the driver aborts the rest

    def close(self) -> None:
        """See `producer.Producer`."""
        self._client = None

    def _call(self, call: Any, *arguments: Any) -> None:
        import confluent_kafka

        try:
            call(*arguments)
        except confluent_kafka.KafkaException as error:
            raise WriteRefusedError(f"{self._config.sink}: {self._why(error.args[0])}") from error

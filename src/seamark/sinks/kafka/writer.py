"""One task attempt: writes Arrow batches into one transaction, flushes it and leaves it open.

The failpoints here: `transaction-begun` (the broker holds some rows of an open transaction) and
`transaction-flushed` (it holds them all, and nobody knows yet).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from seamark.contracts.dead_letters import Refusals
from seamark.contracts.read_back import Targets
from seamark.contracts.sink import WriterContext
from seamark.model import failpoints
from seamark.model.errors import WriteRefusedError
from seamark.model.ignored import ignored
from seamark.sinks.kafka import record_columns, schema_registry
from seamark.sinks.kafka.committable import KafkaCommittable
from seamark.sinks.kafka.producer import ProducerConfig, flush
from seamark.sinks.kafka.producer_pool import Lease, ProducerPool
from seamark.sinks.kafka.value_forms import ValueForm

_ABORT_TIMEOUT_S = 6.0
_IDENTITY_TIMEOUT_S = 10.0


@dataclass(eq=False)
class KafkaWriter:
    """See `CommittingWriter`. Without rows it takes no producer and begins no transaction: ending
    an empty transaction is an error at the broker."""

    _context: WriterContext
    _config: ProducerConfig
    _pool_for: Callable[[ProducerConfig, bool], ProducerPool]
    _form: ValueForm | None = None
    _schema_id: int | None = None
    _pool: ProducerPool | None = None
    _lease: Lease | None = None
    _open_at_broker: bool = False
    _encoded: tuple[pa.RecordBatch, pa.RecordBatch] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """See `CommittingWriter`. Refuses them all for a row that its format cannot hold."""
        made, refusals = self.encoded(batch)
        if refused := refusals.rows():
            raise WriteRefusedError(f"{self._config.sink}: {refused[0].reason}")
        self._encoded = batch, made
        self.write_encoded(made)

    def encoded(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Refusals]:
        """Return the rows with values that are bytes, and those that cannot be."""
        return (batch, Refusals()) if self._form is None else self._form.encoded(batch)

    def write_encoded(self, batch: pa.RecordBatch) -> None:
        """Write rows whose values are bytes."""
        if batch.num_rows == 0:
            return
        if self._lease is None:
            names = set(batch.schema.names)
            self._pool = self._pool_for(self._config, bool(names & {"topic", "headers"}))
            self._lease = self._pool.take(self._context.epoch, self._context.settled_epoch)
            self._lease.producer.begin()
        if self._form is not None and self._schema_id is not None:
            values = schema_registry.framed(batch.column("value"), self._form.head(self._schema_id))
            batch = batch.set_column(batch.schema.get_field_index("value"), "value", values)
        self._lease.producer.produce(batch)
        self._acknowledged()

    def last_targets(self) -> Targets | None:
        """See `AccountableWriter`: topic and partition, if the rows go to one topic by a
        partitioner of Seamark's."""
        if self._lease is None or (grouped := self._lease.producer.last_groups) is None:
            return None
        order, groups = grouped
        if groups[0][0] < 0:
            return None
        return Targets(order, [(f"{self._config.topic}/{p}", s, e) for p, s, e in groups])

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `AccountableWriter`."""
        known, self._encoded = self._encoded, None
        made = known[1] if known and known[0] is batch else self.encoded(batch)[0]
        return record_columns.as_found(made)

    def prepare_commit(self) -> Sequence[KafkaCommittable]:
        """See `CommittingWriter`."""
        lease, pool = self._lease, self._pool
        if lease is None or pool is None:
            return []
        flush(lease.producer, self._config, self._acknowledged)
        rows = {topic: dict(counts) for topic, counts in lease.producer.rows.items() if counts}
        if not lease.transactional_id:
            self._lease = None
            pool.give_back(lease)
            failpoints.reached("transaction-flushed")
            return []
        identity = lease.producer.identity(_IDENTITY_TIMEOUT_S)
        self._lease = None
        pool.discard(lease, self._context.settled_epoch)
        failpoints.reached("transaction-flushed")
        return [
            KafkaCommittable(
                transactional_id=lease.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                rows=rows,
            )
        ]

    def abort(self) -> None:
        """See `CommittingWriter`. After `prepare_commit` the transaction stays open: the driver
        finds it by its id and aborts it."""
        lease, self._lease = self._lease, None
        if lease is None or self._pool is None:
            return
        with ignored("the abort of a transaction"):
            lease.producer.abort(_ABORT_TIMEOUT_S)
        self._pool.discard(lease, self._context.settled_epoch)

    def _acknowledged(self) -> None:
        if not self._open_at_broker and self._lease and self._lease.producer.acknowledged:
            self._open_at_broker = True
            failpoints.reached("transaction-begun")

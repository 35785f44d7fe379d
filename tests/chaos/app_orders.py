"""A user's job, as `seamark verify --app` wants it: orders to Kafka and SQLite. With the argument
``eager`` the second sink has a fault on purpose: its rows are visible before the decision."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import seamark as sm


class EagerWriter:
    """Commits what it has just prepared, as if the epoch were decided."""

    def __init__(self, writer: Any, committer: Any) -> None:
        self._writer, self._committer = writer, committer

    def write(self, batch: Any) -> None:
        self._writer.write(batch)

    def prepare_commit(self) -> Sequence[Any]:
        committables = self._writer.prepare_commit()
        self._committer.commit(committables)
        return committables

    def abort(self) -> None:
        self._writer.abort()


class EagerSink(sm.SQLiteSink):
    def create_writer(self, context: sm.WriterContext) -> Any:
        of_driver = sm.SinkContext(
            context.job_id, "orders", context.sink_uid, context.generation, 1.0
        )
        return EagerWriter(super().create_writer(context), self.create_committer(of_driver))


servers = os.environ.get("SEAMARK_VERIFY_KAFKA", "localhost:9092")
sink_class = EagerSink if "eager" in sys.argv else sm.SQLiteSink
job = sm.Job("orders", checkpoint=sm.CheckpointConfig(storage="checkpoints", interval="1s"))
orders = (
    job.source(sm.KafkaSource(servers, topics=["orders"]), uid="orders")
    .selectExpr("CAST(key AS STRING) AS customer", "CAST(value AS STRING) AS text")
    .selectExpr("customer", "from_json(text, 'id BIGINT').id AS id")
)
job.sink(
    orders,
    sm.KafkaSink(
        servers,
        topic="checked-orders",
        key="customer",
        value_format="json",
        transactional_id_prefix="orders",
        transaction_timeout="14min",
    ),
    uid="to-kafka",
)
job.sink(orders, sink_class("orders.db", table="orders"), uid="to-sqlite")

if __name__ == "__main__":
    job.run()

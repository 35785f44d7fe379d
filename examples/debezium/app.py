"""Debezium's changes of a table, applied to a copy of it in PostgreSQL."""

import os

import seamark as sm

servers = os.environ.get("KAFKA", "localhost:9092")
url = os.environ.get("POSTGRES", "postgresql://postgres@localhost:5432/postgres")

job = sm.Job("copy-orders", sm.CheckpointConfig(storage="checkpoints"))
changes = job.source(
    sm.KafkaSource(
        servers,
        topics="shop.public.orders",
        ending="latest",  # leave it out to go on
        options={"maxOffsetsPerTrigger": 4},
    ),
    uid="changes",
)
orders = sm.debezium(changes, "id BIGINT, name STRING, amount DECIMAL(9,2)", keys="id")
copy = sm.PostgresSink(url, table="orders_copy", mode="upsert", keys=["id"], op="op")
job.sink(orders, copy, uid="copy")

if __name__ == "__main__":
    job.run()

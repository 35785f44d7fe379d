"""Sixty orders into a stream of NATS, twenty an epoch."""

import os

from nats_sink import NatsSink

import seamark as sm
from seamark.sources.fields import RandomInt, Sequence

url = os.environ.get("NATS", "nats://localhost:4222")

job = sm.Job("to-nats", sm.CheckpointConfig(storage="checkpoints"))
orders = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=60,
        rows_per_epoch=20,
        fields={"id": Sequence(), "amount": RandomInt(1, 100)},
    ),
    uid="orders",
)
messages = orders.selectExpr("to_json(struct(*)) AS value")
job.sink(messages, NatsSink(url, "orders", "orders.new"), uid="nats")

if __name__ == "__main__":
    job.run()

"""Sixty orders to two addresses of an HTTP endpoint, twenty an epoch."""

import os

import seamark as sm
from seamark.sources.fields import RandomInt, Sequence

url = os.environ.get("ENDPOINT", "http://localhost:8000")

job = sm.Job("to-http", sm.CheckpointConfig(storage="checkpoints"))
orders = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=60,
        rows_per_epoch=20,
        fields={"id": Sequence(), "amount": RandomInt(1, 100)},
    ),
    uid="orders",
)
# The endpoint keeps the Idempotency-Key of the first, and knows a repetition by it.
job.sink(orders, sm.WriteAheadSink.http(f"{url}/keeps-tokens", idempotent=True), uid="keeps-tokens")
job.sink(orders, sm.WriteAheadSink.http(f"{url}/forgets-tokens"), uid="forgets-tokens")

if __name__ == "__main__":
    job.run()

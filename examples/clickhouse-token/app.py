"""Sixty orders into a table of ClickHouse, twenty an epoch."""

import os

from clickhouse_sink import ClickHouseSink

import seamark as sm
from seamark.sources.fields import RandomInt, Sequence

url = os.environ.get("CLICKHOUSE", "http://localhost:8123")

job = sm.Job("to-clickhouse", sm.CheckpointConfig(storage="checkpoints"))
orders = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=60,
        rows_per_epoch=20,
        fields={"id": Sequence(), "amount": RandomInt(1, 100)},
    ),
    uid="orders",
)
job.sink(orders, ClickHouseSink(url, "orders"), uid="clickhouse")

if __name__ == "__main__":
    job.run()

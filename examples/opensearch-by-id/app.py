"""Sixty orders into an index of OpenSearch, twenty an epoch."""

import os

from opensearch_sink import OpenSearchSink

import seamark as sm
from seamark.sources.fields import RandomInt, Sequence

url = os.environ.get("OPENSEARCH", "http://localhost:9200")

job = sm.Job("to-opensearch", sm.CheckpointConfig(storage="checkpoints"))
orders = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=60,
        rows_per_epoch=20,
        fields={"id": Sequence(), "amount": RandomInt(1, 100)},
    ),
    uid="orders",
)
job.sink(orders, OpenSearchSink(url, "orders", id="id"), uid="opensearch")

if __name__ == "__main__":
    job.run()

"""Sixty payments into two accounts' tables, in the mode given: `python app.py MODE`."""

import sys

import seamark as sm
from seamark.sources.fields import Sequence

mode = sys.argv[1]
job = sm.Job(mode, sm.CheckpointConfig(storage="checkpoints", mode=mode))

payments = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=60,
        rows_per_epoch=20,
        partitions=1,
        fields={"id": Sequence()},
    ),
    uid="payments",
).selectExpr("id", "10 AS amount")
for table in ("debit", "credit"):
    job.sink(payments, sm.SQLiteSink(f"{mode}.db", table), uid=table)

if __name__ == "__main__":
    job.run()

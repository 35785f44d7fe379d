"""Clicks counted per page, and upserted into MySQL or MariaDB."""

import os

import seamark as sm

url = os.environ.get("MYSQL", "mysql://root@localhost:3306/test")

job = sm.Job("pages", sm.CheckpointConfig(storage="checkpoints"), output_mode="update")
clicks = job.source(
    sm.DatagenSource(rows_per_second=100, number_of_rows=600, rows_per_epoch=200), uid="clicks"
)
counts = clicks.groupBy("page").count()
job.uid(counts, "per-page")
sink = sm.MySQLSink(url, table="clicks_per_page", mode="upsert", keys=["page"])
job.sink(counts, sink, uid="mysql")

if __name__ == "__main__":
    job.run()

"""Clicks per user and ten seconds: two sources, one window, two sinks, one checkpoint.

JSON files and a generated stream go in; the same counts come out in a SQLite table and in Parquet
files, each exactly once. Run it with ``python clicks_embedded.py``; kill it whenever you
like and run it again; see its guarantees with ``seamark explain clicks_embedded.py``.
"""

import os
from pathlib import Path

from pyspark.sql import functions as F

import seamark as sm

DIRECTORY = Path(os.environ.get("CLICKS_DIRECTORY", "clicks")).absolute()
ROWS_PER_EPOCH = int(os.environ.get("CLICKS_ROWS_PER_EPOCH", "10000"))
EPOCHS = int(os.environ.get("CLICKS_EPOCHS", "24"))
(DIRECTORY / "input").mkdir(parents=True, exist_ok=True)

job = sm.Job("clicks", checkpoint=sm.CheckpointConfig(storage=f"file://{DIRECTORY}/checkpoints"))

logged = job.source(
    sm.FileSource(
        DIRECTORY / "input",
        format="json",
        schema="timestamp TIMESTAMP, user STRING, page STRING",
        ending="latest",
        options={"maxFilesPerTrigger": 1},
    ),
    uid="logged",
)
generated = job.source(
    sm.DatagenSource(
        rows_per_second=ROWS_PER_EPOCH // 20,
        number_of_rows=ROWS_PER_EPOCH * EPOCHS,
        rows_per_epoch=ROWS_PER_EPOCH,
    ),
    uid="generated",
)

# Each source has a watermark of its own: Spark then waits for the slower of the two.
clicks = (
    logged.withWatermark("timestamp", "10 seconds")
    .select("timestamp", "user")
    .union(generated.withWatermark("timestamp", "10 seconds").select("timestamp", "user"))
)
per_user = (
    clicks.groupBy(F.window("timestamp", "10 seconds"), "user")
    .count()
    .select(F.col("window.start").alias("window_start"), "user", "count")
)
job.uid(per_user, "per-user")

job.sink(per_user, sm.SQLiteSink(str(DIRECTORY / "clicks.db"), table="per_user"), uid="to-sqlite")
job.sink(per_user, sm.FileSink(str(DIRECTORY / "per-user"), format="parquet"), uid="to-parquet")

if __name__ == "__main__":
    job.run()

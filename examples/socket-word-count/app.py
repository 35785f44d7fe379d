"""Words from a socket, counted and printed, with every checkpoint setting said."""

import os

from pyspark.sql import functions as F

import seamark as sm

host, _, port = os.environ.get("SOCKET", "localhost:9999").rpartition(":")

job = sm.Job(
    "word-count",
    sm.CheckpointConfig(
        storage="checkpoints",  # or hdfs://…, s3a://…
        interval="5s",
        mode="exactly-once",
        timeout="60s",
        max_concurrent_checkpoints=1,
        min_pause="1s",
        externalized_retention="RETAIN_ON_CANCELLATION",
        tolerable_failed_checkpoints=10,
        unaligned=True,
        aligned_timeout="1s",
    ),
    output_mode="update",
)

lines = job.source(sm.SocketSource(host, int(port)), uid="lines")
words = lines.select(F.explode(F.split("value", " ")).alias("word"))
counts = words.groupBy("word").count()
job.uid(counts, "counts")
job.sink(counts, sm.ConsoleSink(), uid="console")

if __name__ == "__main__":
    job.run()

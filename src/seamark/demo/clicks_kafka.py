"""Clicks per user and ten seconds, from Kafka to Kafka, exactly once.

A ``read_committed`` reader of the output topic sees each count once, whatever dies on the way.
Try it on ``seamark dev kafka --port 9092 --topic clicks:4 --topic clicks-per-user``.
"""

import os
from pathlib import Path

from pyspark.sql import functions as F

import seamark as sm

SERVERS = os.environ.get("CLICKS_SERVERS", "localhost:9092")
STORAGE = Path(os.environ.get("CLICKS_DIRECTORY", "clicks")).absolute()
ROWS_PER_EPOCH = os.environ.get("CLICKS_ROWS_PER_EPOCH", "20000")

job = sm.Job(
    "clicks-kafka",
    checkpoint=sm.CheckpointConfig(interval="1s", storage=f"file://{STORAGE}/checkpoints"),
)

clicks = job.source(
    sm.KafkaSource(
        SERVERS,
        topics=["clicks"],
        ending=os.environ.get("CLICKS_ENDING", "never"),
        group_id="clicks",
        options={"maxOffsetsPerTrigger": ROWS_PER_EPOCH},
    ),
    uid="clicks",
)

per_user = (
    clicks.withWatermark("timestamp", "10 seconds")
    .groupBy(F.window("timestamp", "10 seconds"), "key")
    .count()
)
job.uid(per_user, "per-user")

job.sink(
    per_user.select("key", F.to_json(F.struct("window.start", "count")).alias("value")),
    sm.KafkaSink(SERVERS, topic="clicks-per-user", transactional_id_prefix="clicks-per-user"),
    uid="to-kafka",
)

if __name__ == "__main__":
    job.run()

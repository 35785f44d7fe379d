"""Kafka to a windowed count, into Kafka and SQLite; and the rows themselves into SQLite.

The input's values are ``sequence,time_ms``; the counts' values ``window start in ms,count``.
"""

import json
import logging
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("kafka").setLevel(logging.WARNING)
logging.getLogger("py4j").setLevel(logging.WARNING)
job = sm.Job(
    "windows",
    checkpoint=sm.CheckpointConfig(
        storage=options["storage"],
        interval=options["interval"],
        timeout=options["timeout"],
    ),
)
source = sm.KafkaSource(
    options["servers"],
    topics=[options["input"]],
    starting_offsets="earliest",
    ending=options.get("ending", "never"),
)
rows = job.source(source, uid="input").selectExpr(
    "CAST(key AS STRING) AS key",
    "CAST(value AS STRING) AS value",
    "timestamp_millis(CAST(split_part(CAST(value AS STRING), ',', 2) AS BIGINT)) AS time",
)
counts = (
    rows.withWatermark("time", "2 seconds").groupBy(F.window("time", "10 seconds"), "key").count()
)
job.uid(counts, "per-window")
shown = counts.selectExpr("key", "concat(unix_millis(window.start), ',', count) AS value")
job.sink(
    shown,
    sm.KafkaSink(
        options["servers"],
        topic=options["output"],
        delivery_guarantee="exactly-once",
        transactional_id_prefix=options["prefix"],
        transaction_timeout=options["transaction_timeout"],
    ),
    uid="windows-to-kafka",
)
job.sink(shown, sm.SQLiteSink(options["database"], table="windows"), uid="windows-to-sqlite")
job.sink(
    rows.select("key", "value"),
    sm.SQLiteSink(options["database"], table="events"),
    uid="events-to-sqlite",
)

if __name__ == "__main__":
    gate = options.get("gate")  # the harness holds a driver here until its turn comes
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    job.run()
    if "ended" in options:  # under spark-submit Python's last output goes through the JVM
        Path(options["ended"]).touch()

"""Spark's documented queries from Kafka, as their users write them: the word count, the windowed
count, and rows passed on. ``{"seamark": false}`` leaves the one line that differs as it was.

`seamark txn` and `seamark explain` execute this program too.
"""

import json
import logging
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import explode, split, window

import seamark as sm

options = json.loads(sys.argv[1] if len(sys.argv) > 1 else Path("options.json").read_text())
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("kafka").setLevel(logging.WARNING)
logging.getLogger("py4j").setLevel(logging.WARNING)
spark = (
    SparkSession.builder.appName("StructuredKafkaWordCount")
    .config("spark.jars", options["jars"])
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")


def lines_of(reader) -> DataFrame:
    lines = (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", options["servers"])
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", options["input"])
        .option("startingOffsets", "earliest")
    )
    if reader is not spark.read:
        lines = lines.option("maxOffsetsPerTrigger", options.get("most", 100_000))
    return lines.load().selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")


def word_count(lines: DataFrame) -> DataFrame:
    words = lines.select(explode(split(lines.key, "-")).alias("word"))
    return words.groupBy("word").count().selectExpr("word AS key", "string(count) AS value")


def windowed_count(lines: DataFrame) -> DataFrame:
    words = lines.selectExpr(
        "key AS word", "timestamp_millis(bigint(split_part(value, ',', 2))) AS timestamp"
    )
    counts = (
        words.withWatermark("timestamp", "2 seconds")
        # By name: the guide's `words.timestamp` has no watermark, and append mode needs one.
        .groupBy(window("timestamp", "10 seconds"), "word")
        .count()
    )
    start = "concat(unix_millis(window.start), ',', count) AS value"
    return counts.selectExpr("word AS key", start)


def passed_on(lines: DataFrame) -> DataFrame:
    return lines


QUERIES = {"words": (word_count, "update"), "windows": (windowed_count, "append"),
           "rows": (passed_on, "append")}  # fmt: skip
query, mode = QUERIES[options["query"]]

if options.get("batch"):  # the same program, as a batch
    found = query(lines_of(spark.read)).collect()
    Path(options["batch"]).write_text(json.dumps([[row.key, row.value] for row in found]))
    sys.exit(0)

results = query(lines_of(spark.readStream))
writer = sm.write_stream(results) if options.get("seamark", True) else results.writeStream
writer = (
    writer.outputMode(mode)
    .format("kafka")
    .option("kafka.bootstrap.servers", options["servers"])
    .option("topic", options["output"])
    .option("checkpointLocation", options["storage"] + "/location")
    .queryName("counted")
)
if options.get("available_now"):
    writer = writer.trigger(availableNow=True)
else:
    writer = writer.trigger(processingTime=options["interval"])
if options.get("seamark", True):
    writer = writer.option("transactional_id_prefix", options["prefix"])
gate = options.get("gate")  # the harness holds a driver here until its turn comes
while gate and not Path(gate).exists():
    time.sleep(0.02)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
running = writer.start()
running.awaitTermination()

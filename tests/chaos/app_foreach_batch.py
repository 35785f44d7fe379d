"""Files through `foreach_batch`, one file an epoch, as its page shows it: a function with
a table of tokens, Spark's JDBC writer, Delta's MERGE, and a function without the token.

A program for a test to kill.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import DataFrame, SparkSession

import seamark as sm

options = json.loads(sys.argv[1])
URL: str = options["url"]


def first_time(db: psycopg.Connection[Any], token: sm.EpochToken) -> bool:
    """Keep the token in the transaction that is open; False if it is there already."""
    sql = "INSERT INTO tokens VALUES (%s) ON CONFLICT DO NOTHING"
    return db.execute(sql, [str(token)]).rowcount == 1


def with_token(df: DataFrame, token: sm.EpochToken) -> None:
    with psycopg.connect(URL) as db:
        if first_time(db, token):
            rows = [tuple(row) for row in df.collect()]
            db.cursor().executemany("INSERT INTO target VALUES (%s)", rows)


def without_token(df: DataFrame, batch_id: int) -> None:
    assert isinstance(batch_id, int)
    with psycopg.connect(URL) as db:
        db.cursor().executemany("INSERT INTO target VALUES (%s)", [tuple(r) for r in df.collect()])


def by_jdbc(df: DataFrame, token: sm.EpochToken) -> None:
    df.write.jdbc(options["jdbc"], "stage", mode="overwrite", properties=options["login"])
    with psycopg.connect(URL) as db:
        if first_time(db, token):
            db.execute("INSERT INTO target SELECT number FROM stage")


def by_merge(df: DataFrame, token: sm.EpochToken) -> None:
    spark = df.sparkSession
    spark.conf.set("spark.databricks.delta.write.txnAppId", f"{token.job_id}-{token.sink_uid}")
    spark.conf.set("spark.databricks.delta.write.txnVersion", str(token.epoch))
    counts = df.selectExpr("number % 5 AS key").groupBy("key").count()
    counts.createOrReplaceTempView("counts")
    spark.sql(
        f"MERGE INTO delta.`{options['table']}` t USING counts s ON t.key = s.key "
        "WHEN MATCHED THEN UPDATE SET t.count = t.count + s.count WHEN NOT MATCHED THEN INSERT *"
    )


WAYS: dict[str, Callable[..., None]] = {
    "with_token": with_token, "by_jdbc": by_jdbc, "by_merge": by_merge,
}  # fmt: skip

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for key, value in options.get("spark", {}).items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    stream = (
        spark.readStream.schema("number BIGINT")
        .option("maxFilesPerTrigger", 1)
        .json(options["input"])
    )
    if "table" in options and not Path(options["table"]).exists():
        none = spark.createDataFrame([], "key BIGINT, count BIGINT")
        none.write.format("delta").save(options["table"])
    writer = sm.write_stream(stream)
    way = options["way"]
    writer = (
        writer.foreachBatch(without_token)
        if way == "without_token"
        else writer.foreach_batch(WAYS[way], idempotent=True)
    )
    writer = writer.option("checkpointLocation", options["storage"] + "/numbers")
    writer.trigger(availableNow=True).start().awaitTermination()
    if options.get("shown"):
        rows = spark.read.format("delta").load(options["table"]).collect()
        Path(options["shown"]).write_text(json.dumps(sorted(tuple(row) for row in rows)))

"""Seamark's sink, exactly-once, and Spark's own, at-least-once: one driver for each engine.

All read through the options of `sm.KafkaSource`, keep state in RocksDB, and take EPOCH_ROWS an
epoch. What differs is the sink, as in `benchmarks/kafka_sink.py`.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import seamark as sm
from benchmarks.kafka_sink import TUNED, seamark_writer, spark_writer
from benchmarks.peers import nexmark
from benchmarks.peers.engine import serve
from benchmarks.peers.work import DELAY_S, EPOCH_ROWS, FIRST_MS, PARTITIONS, WINDOW_MS
from seamark.spark.session import require_format, spark_session

SINKS: dict[str, tuple[str, dict[str, str]]] = {
    "spark": ("Spark's sink, defaults", {}),
    "spark-tuned": ("Spark's sink, linger 20 ms, batches of 500 kB", TUNED),
}
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class Spark:
    """One driver, which runs one query after another."""

    def __init__(self, engine: str, servers: str) -> None:
        self._engine, self._servers = engine, servers
        self._session = spark_session(f"peers-{engine}")
        require_format(self._session, "kafka")
        for name, value in SETTINGS.items():
            self._session.conf.set(name, value)
        self._query: StreamingQuery | None = None

    def about(self) -> dict[str, str]:
        """Return the versions and what is set."""
        sink = f"`sm.KafkaSink`, seamark {sm.__version__}"
        name, guarantee = (sink, "exactly-once")
        if self._engine in SINKS:
            name, guarantee = SINKS[self._engine][0], "at-least-once"
        return {
            "version": f"PySpark {pyspark.__version__}",
            "guarantee": guarantee,
            "settings": f"{name}; at most {EPOCH_ROWS:,} rows an epoch; RocksDB; "
            f"{PARTITIONS} shuffle partitions; one driver, `{self._session.sparkContext.master}`",
        }

    def start(self, run: dict[str, Any]) -> None:
        """Start a run's query; return when Spark has started it."""
        options = {"maxOffsetsPerTrigger": run["epoch_rows"]}
        reader = sm.KafkaSource(
            self._servers, run["source"], starting_offsets="earliest", options=options
        ).reader()
        rows = self._session.readStream.format("kafka").options(**reader.options).load()
        frame, mode = worked(rows, run["work"])
        writer = self._writer(frame, run["target"]).outputMode(mode)
        writer = writer.option("checkpointLocation", Path(run["storage"]).as_uri())
        if run["ends"]:
            writer = writer.trigger(availableNow=True)
        try:
            self._query = writer.start()
        except PySparkException as error:
            raise RuntimeError((error.getMessage() or str(error)).split(". ")[0]) from None

    def _writer(self, frame: DataFrame, target: str) -> Any:
        if self._engine in SINKS:
            return spark_writer(frame, self._servers, target, SINKS[self._engine][1])
        return seamark_writer(frame, self._servers, target, "exactly-once", target)

    def finish(self) -> None:
        """Wait until the query that ends by itself has ended."""
        assert self._query is not None
        self._query.awaitTermination()
        for thread in threading.enumerate():
            if thread.name == "seamark-run":
                thread.join()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self.finish()
            self._query = None

    def judge(self, query: str, source: str, path: str) -> None:
        """Write what Spark's batch run of a Nexmark query gives over the same events: a line for
        each row, key and value."""
        read = self._session.read.format("kafka").option("subscribe", source)
        rows = read.option("kafka.bootstrap.servers", self._servers).load()
        frame, _ = worked(rows, query)
        with Path(path).open("w") as out:
            for key, value in frame.collect():
                out.write(json.dumps([key and bytes(key).decode(), value]) + "\n")


def worked(rows: DataFrame, work: str) -> tuple[DataFrame, str]:
    """Return a work's key and value, and the output mode."""
    value = rows["value"].cast("string")
    if work == "a":
        return rows.select("key", "value"), "append"
    if work == "b-row":
        return rows.select("key", row_function()(value).alias("value")), "append"
    if work == "b-batch":
        return rows.select("key", batch_function()(value).alias("value")), "append"
    if work == "c":
        return counted(rows, value), "append"
    return nexmark.QUERIES[work].over(rows)


def counted(rows: DataFrame, value: Column) -> DataFrame:
    at = F.timestamp_millis(FIRST_MS + F.substring(value, 1, 10).cast("long"))
    events = rows.select("key", at.alias("at")).withWatermark("at", f"{DELAY_S} seconds")
    counts = events.groupBy("key", F.window("at", f"{WINDOW_MS} milliseconds")).count()
    start = F.date_format("window.start", "yyyy-MM-dd HH:mm:ss")
    key = F.col("key").cast("string")
    return counts.select("key", F.concat_ws("|", key, start, "count").alias("value"))


def row_function() -> Any:
    return F.udf(lambda value: value.upper(), "string", useArrow=False)


def batch_function() -> Any:
    def upper(values: pd.Series) -> pd.Series:
        return values.str.upper()

    return F.pandas_udf(upper, "string")


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    serve(Spark(options["engine"], options["servers"]))

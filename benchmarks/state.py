"""What an epoch, and a start, cost as a query's state grows: Seamark beside plain Spark.

    python -m benchmarks.state [--megabytes 10,100,1000,5000] [--epochs 30]

Both run the same query, a value and a count for each key in RocksDB with its changelog, four state
partitions, into a checkpoint on this machine's disk: Seamark exactly-once into SQLite by key, plain
Spark into its noop sink. A state of each size is filled in epochs of an eighth of its keys; then
the query starts anew and updates 2,000 of the keys an epoch. Values are hexadecimal digits of
hashes, so RocksDB can halve them.

Columns: the median epoch of each, and their difference, which must not grow with the state; the
time from a start to the end of its first epoch, with nothing of the state on this machine's disk
but the checkpoint; and what the checkpoint holds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

import seamark as sm
from seamark.spark.session import spark_session
from seamark.spark.state_backend import PROVIDER, ROCKSDB_PROVIDER

VALUE = 8 * 1024
"""Bytes of a key's value in state."""
FILLS, UPDATED = 8, 2_000
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    PROVIDER: ROCKSDB_PROVIDER,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

Start = Callable[[DataFrame, Path], StreamingQuery]


def seamark(frame: DataFrame, directory: Path) -> StreamingQuery:
    sink = sm.SQLiteSink(str(directory / "counts.db"), "counts", keys=["k"], create_table=True)
    writer = sm.write_stream(frame, sink).option("checkpointLocation", f"file://{directory}/ck")
    return writer.outputMode("update").trigger(processingTime="0 seconds").start()


def plain(frame: DataFrame, directory: Path) -> StreamingQuery:
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"file://{directory}/ck")
    return writer.outputMode("update").trigger(processingTime="0 seconds").start()


def counts(spark: SparkSession, keys: int, rows: int) -> DataFrame:
    """Return a count and the greatest value of each key, of a stream with `rows` rows an epoch."""
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
    parts = [F.sha2(F.concat("value", F.lit(f"/{part}")), 512) for part in range(VALUE // 128)]
    values = rates.select((F.col("value") % keys).alias("k"), F.concat(*parts).alias("text"))
    kept = values.groupBy("k").agg(F.count("*").alias("n"), F.max("text").alias("text"))
    return kept.select("k", "n", F.length("text").alias("length"))


def run(start: Start, frame: DataFrame, directory: Path, epochs: int) -> tuple[float, list[float]]:
    """Run some epochs; return the seconds to the first one's end, and each epoch's ms."""
    begun = time.perf_counter()
    query = start(frame, directory)
    first, ended = 0.0, []
    while len(ended) < epochs:
        time.sleep(0.05)
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
        ended = [p for p in query.recentProgress if p["numInputRows"]]
        if ended and not first:
            first = time.perf_counter() - begun
    query.stop()
    return first, [p["durationMs"]["triggerExecution"] for p in ended]


def measure(spark: SparkSession, megabytes: int, epochs: int, out: Table) -> None:
    keys = megabytes * 1_000_000 // VALUE
    starts: dict[str, Start] = {"seamark": seamark, "plain": plain}
    epoch: dict[str, list[float]] = {name: [] for name in starts}
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as root:
        for name, start in starts.items():
            directory = Path(root) / name
            directory.mkdir()
            run(start, counts(spark, keys, keys // FILLS), directory, FILLS)
        for _ in range(2):  # in turns, so that what the machine does meanwhile meets both
            for name, start in starts.items():
                unload(spark)
                frame = counts(spark, keys, UPDATED)
                first[name], durations = run(start, frame, Path(root) / name, epochs)
                epoch[name] += durations[1:]
        size = {name: bytes_below(Path(root) / name / "ck") for name in starts}
    median = {name: statistics.median(durations) for name, durations in epoch.items()}
    out.add_row(
        f"{megabytes:,} MB",
        *(f"{median[name]:.0f} ms" for name in starts),
        f"{median['seamark'] - median['plain']:.0f} ms",
        *(f"{first[name]:.1f} s" for name in starts),
        *(f"{size[name] / 1e6:,.0f} MB" for name in starts),
    )


def unload(spark: SparkSession) -> None:
    """Let the next start load its state from the checkpoint, as a new executor does."""
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--megabytes", default="10,100,1000,5000")
    parser.add_argument("--epochs", type=int, default=30, help="measured at a start, of two each")
    arguments = parser.parse_args()
    console = Console(width=130)
    spark = spark_session("state")
    for setting, value in SETTINGS.items():
        spark.conf.set(setting, value)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    shown = Table(title=f"{UPDATED:,} rows an epoch, values of {VALUE:,} bytes")
    for column in ("state", "epoch: Seamark", "plain", "difference", "first: Seamark", "plain",
                   "checkpoint: Seamark", "plain"):  # fmt: skip
        shown.add_column(column, justify="right")
    for megabytes in map(int, arguments.megabytes.split(",")):
        measure(spark, megabytes, arguments.epochs, shown)
        console.print(shown)
    spark.stop()


if __name__ == "__main__":
    main()

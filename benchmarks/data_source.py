"""A batch of ``format("seamark")`` into Kafka beside Spark's own sink, in turns; and its `commit()`
into SQLite, alone.

    python -m benchmarks.data_source [--rows 10000,200000] [--batches 20] [--rounds 3]

Each variant copies the same Parquet files, one a batch, into a topic of 4 partitions, in two tasks.
The time of a batch is Spark's `triggerExecution`, from its planning to its commit log; the first
round, and each run's first two batches, warm up and are not counted. Spark's sink gives
at-least-once, the other two exactly-once.

`commit()` is timed without Spark, as Spark's worker calls it: from the tasks' messages to the proof
that SQLite's readers see the rows, with the log's three files.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import LongType, StringType, StructField, StructType
from rich.console import Console
from rich.table import Table

import seamark as sm
from seamark.datasource import writers
from seamark.dev.kafka import LocalKafka
from seamark.spark.session import require_format, spark_session

PARTITIONS = 4
WARM_UP_BATCHES = 2
AIMS = {10_000: 1.5, 200_000: 1.0}
"""The most that a batch may cost, as a multiple of Spark's, by its rows."""
COMMIT_MS = 30

Start = Callable[[DataFrame, str], StreamingQuery]


def variants(servers: str) -> dict[str, Start]:
    def plain(name: str, **options: str) -> Start:
        def start(frame: DataFrame, location: str) -> StreamingQuery:
            writer = frame.writeStream.format(name).options(**options)
            return writer.option("checkpointLocation", location).trigger(availableNow=True).start()

        return start

    def job(frame: DataFrame, location: str) -> StreamingQuery:
        prefix = f"bench-{uuid.uuid4().hex[:8]}"
        sink = sm.KafkaSink(servers, topic="out-job", transactional_id_prefix=prefix)
        writer = sm.write_stream(frame, sink).option("checkpointLocation", location)
        return writer.trigger(availableNow=True).start()

    kafka = {"kafka.bootstrap.servers": servers}
    return {
        "spark's sink": plain("kafka", topic="out-spark", **kafka),
        'format("seamark")': plain("seamark", sink="kafka", topic="out-seamark", **kafka),
        "sm.write_stream": job,
        "noop": plain("noop"),
    }


def fill(directory: Path, batches: int, rows: int) -> None:
    directory.mkdir()
    for batch in range(batches):
        ids = range(batch * rows, (batch + 1) * rows)
        texts = pa.array([f"{i:010d}|" + "x" * 89 for i in ids])
        keys = pa.array([str(i % 1000) for i in ids])
        parquet.write_table(pa.table({"key": keys, "value": texts}), directory / f"{batch:03d}")


def measure(spark: SparkSession, files: Path, start: Start) -> list[float]:
    """Return the counted batches' durations in ms."""
    reader = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
    frame = reader.parquet(f"file://{files}").repartition(2)
    with tempfile.TemporaryDirectory() as location:
        query = start(frame, f"file://{location}")
        query.awaitTermination()
        progress = [p for p in query.recentProgress if p["numInputRows"]]
    assert len(progress) == len([*files.iterdir()]), "the run did not copy every file"
    return [p["durationMs"]["triggerExecution"] for p in progress][WARM_UP_BATCHES:]


def commits(batches: int, rows: int) -> list[float]:
    """Return what `commit()` into SQLite takes, in ms."""
    columns = StructType([StructField("id", LongType()), StructField("text", StringType())])
    task = TaskContext._getOrCreate()
    found = []
    with tempfile.TemporaryDirectory() as directory:
        place = {"path": f"{directory}/x.db", "checkpointlocation": f"{directory}/checkpoint"}
        options = {"sink": "sqlite", "table": "t", **place}
        for batch in range(batches):
            ids = range(batch * rows, (batch + 1) * rows)
            batch_rows = pa.RecordBatch.from_pydict({"id": [*ids], "text": ["x" * 90] * rows})
            at = writers.place_of(options, columns, overwrite=False)
            writer = writers.plan_batch(at)
            task._partitionId, task._attemptNumber, task._taskAttemptId = 0, 0, batch
            ids_of_batch = {"streaming.sql.batchId": str(batch), "sql.streaming.queryId": "bench"}
            task._localProperties = ids_of_batch
            told = writer.write(iter([batch_rows]))
            begun_s = time.perf_counter()
            writers.BatchCommit(at).commit([told], batch)
            found.append((time.perf_counter() - begun_s) * 1000)
    TaskContext._taskContext = None  # a process with one gets no SparkContext
    return found[WARM_UP_BATCHES:]


def table(rows: int, figures: dict[str, list[float]]) -> Table:
    aim = f"; aim: at most {AIMS[rows]} x Spark's" if rows in AIMS else ""
    shown = Table(title=f"{rows:,} rows a batch{aim}")
    for column in ("variant", "batch ms", "x Spark's", "worst/median"):
        shown.add_column(column, justify="right" if column != "variant" else "left")
    median = {name: statistics.median(found) for name, found in figures.items()}
    for name, found in figures.items():
        ratio = median[name] / median["spark's sink"]
        worst = max(found) / median[name]
        shown.add_row(name, f"{median[name]:.0f}", f"{ratio:.2f}", f"{worst:.2f}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", default="10000,200000")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    console = Console(width=120)
    times = commits(arguments.batches, 10_000)
    console.print(
        f"commit() of 10,000 rows into SQLite: median {statistics.median(times):.1f} ms, worst "
        f"{max(times):.1f} ms; aim: at most {COMMIT_MS} ms"
    )
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as directory:
        servers = kafka.bootstrap_servers
        topics = [NewTopic(f"out-{t}", PARTITIONS, 1) for t in ("spark", "seamark", "job")]
        admin = AdminClient({"bootstrap.servers": servers})  # collected, it would end its calls
        for done in admin.create_topics(topics).values():
            done.result()
        spark = spark_session("benchmark")
        require_format(spark, "kafka")
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
        for rows in map(int, arguments.rows.split(",")):
            files = Path(directory) / str(rows)
            fill(files, arguments.batches, rows)
            starts = variants(servers)
            figures: dict[str, list[float]] = {name: [] for name in starts}
            for round_ in range(-1, arguments.rounds):
                for name, start in starts.items():
                    found = measure(spark, files, start)
                    if round_ >= 0:
                        figures[name] += found
            console.print(table(rows, figures))


if __name__ == "__main__":
    main()

"""Kafka -> Spark -> Kafka: Seamark's sink beside Spark's own, in one process, alternating.

    python -m benchmarks.kafka_sink [--rows 5000000] [--rounds 3] [--epochs 5000000,1000000,...]
                                    [--partitions 4]

Each variant copies the same topic (records of 100 bytes) with `Trigger.AvailableNow`
and `maxOffsetsPerTrigger` = rows an epoch. All read through the options of `sm.KafkaSource`: with
Kafka's own defaults the reader waits half of its time, and hides what the sinks cost. The first
rounds warm up and are not counted: what the driver and the broker do once an epoch is compiled only
after hundreds of epochs. Every round's rates are printed as it ends, so that one sees where they
settle. Small epochs copy fewer rows: at most EPOCHS_AT_MOST epochs. Time runs from the first
trigger's start to the last row's being visible; CPU is that of the driver's whole process tree,
without the broker.

"overhead" is the median epoch's duration less that of the same query into Spark's noop sink.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

import seamark as sm
from benchmarks.process_tree import cpu_s
from seamark.dev.kafka import LocalKafka
from seamark.spark.session import require_format, spark_session

EPOCHS_AT_MOST = 40
WARM_UP_EPOCHS, WARM_UP_ROWS = 480, 48_000_000
"""Of each variant before its first counted round, the fewer of the two; a round at least."""
TUNED = {"kafka.linger.ms": "20", "kafka.batch.size": "500000", "kafka.buffer.memory": "268435456"}


@dataclass
class Figures:
    """What one variant gave at one epoch size, a value a round."""

    rows_per_s: list[float] = field(default_factory=list)
    cpu_us_per_row: list[float] = field(default_factory=list)
    epoch_ms: list[float] = field(default_factory=list)

    @property
    def worst_to_median(self) -> float:
        return max(self.epoch_ms) / statistics.median(self.epoch_ms)


Start = Callable[[DataFrame, str], StreamingQuery]


def seamark_writer(
    frame: DataFrame, servers: str, topic: str, guarantee: Any, prefix: str | None
) -> Any:
    sink = sm.KafkaSink(
        servers, topic=topic, delivery_guarantee=guarantee, transactional_id_prefix=prefix
    )
    return sm.write_stream(frame, sink)


def spark_writer(frame: DataFrame, servers: str, topic: str, options: dict[str, str]) -> Any:
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
    return writer.option("topic", topic).options(**options)


def variants(servers: str) -> dict[str, Start]:
    def started(writer: Any, location: str) -> StreamingQuery:
        return writer.option("checkpointLocation", location).trigger(availableNow=True).start()

    def seamark(guarantee: str) -> Start:
        prefix = f"bench-{uuid.uuid4().hex[:8]}" if guarantee == "exactly-once" else None
        return lambda frame, location: started(
            seamark_writer(frame, servers, "out-seamark", guarantee, prefix), location
        )

    def spark(options: dict[str, str]) -> Start:
        return lambda frame, location: started(
            spark_writer(frame, servers, "out-spark", options), location
        )

    def noop(frame: DataFrame, location: str) -> StreamingQuery:
        return (
            frame.writeStream.format("noop")
            .option("checkpointLocation", location)
            .trigger(availableNow=True)
            .start()
        )

    return {
        "seamark exactly-once": seamark("exactly-once"),
        "seamark at-least-once": seamark("at-least-once"),
        "spark default": spark({}),
        "spark tuned": spark(TUNED),
        "noop": noop,
    }


def fill(servers: str, topic: str, rows: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    )
    for first in range(0, rows, 10_000):
        batch = [
            {"key": str(i % 1000), "value": b"%010d|" % i + b"x" * 89}
            for i in range(first, min(rows, first + 10_000))
        ]
        while batch:
            producer.produce_batch(topic, batch)
            batch = [m for m in batch if m.pop("_error", None)]
            producer.poll(0.01 if batch else 0)
    producer.flush()


def measure(
    spark: SparkSession, servers: str, topic: str, rows: int, epoch: int, start: Start, out: Figures
) -> None:
    reader = sm.KafkaSource(servers, topic, options={"maxOffsetsPerTrigger": epoch}).reader()
    frame = spark.readStream.format("kafka").options(**reader.options).load().select("key", "value")
    with tempfile.TemporaryDirectory() as location:
        cpu = cpu_s(BROKERS)
        query = start(frame, "file://" + location)
        query.awaitTermination()
        for thread in threading.enumerate():
            if thread.name == "seamark-run":
                thread.join()
        cpu = cpu_s(BROKERS) - cpu
        progress = [p for p in query.recentProgress if p["numInputRows"]]
        end = begun(progress[-1]) + progress[-1]["durationMs"]["triggerExecution"] / 1000
        # Seamark's rows are visible when the last epoch is recorded as committed.
        records = Path(location).glob("epochs/*/committed.json")
        end = max([end, *(record.stat().st_mtime for record in records)])
    assert sum(p["numInputRows"] for p in progress) == rows, "the run did not copy every row"
    out.rows_per_s.append(rows / (end - begun(progress[0])))
    out.cpu_us_per_row.append(cpu / rows * 1e6)
    out.epoch_ms += [p["durationMs"]["triggerExecution"] for p in progress]


def begun(progress: dict[str, Any]) -> float:
    """Return when an epoch's trigger started, in seconds since 1970."""
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()


BROKERS: frozenset[int] = frozenset()


@contextlib.contextmanager
def broker() -> Iterator[str]:
    global BROKERS
    import psutil

    with LocalKafka() as kafka:
        BROKERS = frozenset(p.pid for p in psutil.Process().children(recursive=True))
        yield kafka.bootstrap_servers


def table(epoch: int, rows: int, figures: dict[str, Figures]) -> Table:
    shown = Table(title=f"{rows:,} rows, {epoch:,} an epoch")
    for column in ("variant", "rows/s", "x default", "x tuned", "CPU us/row", "x tuned", "epoch ms",
                   "worst/median", "overhead ms"):  # fmt: skip
        shown.add_column(column, justify="right" if column != "variant" else "left")
    rate = {name: statistics.median(f.rows_per_s) for name, f in figures.items()}
    cpu = {name: statistics.median(f.cpu_us_per_row) for name, f in figures.items()}
    length = {name: statistics.median(f.epoch_ms) for name, f in figures.items()}
    for name, found in figures.items():
        shown.add_row(
            name,
            f"{rate[name]:,.0f}",
            f"{rate[name] / rate['spark default']:.2f}",
            f"{rate[name] / rate['spark tuned']:.2f}",
            f"{cpu[name]:.2f}",
            f"{cpu[name] / cpu['spark tuned']:.2f}",
            f"{length[name]:.0f}",
            f"{found.worst_to_median:.2f}",
            f"{length[name] - length['noop']:.0f}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", default="5000000,1000000,100000,10000")
    parser.add_argument("--partitions", type=int, default=4, help="of each topic")
    parser.add_argument("--only", help="a part of the variants' names, for trials: no ratios")
    arguments = parser.parse_args()
    console = Console(width=140)
    with broker() as servers:
        admin = AdminClient({"bootstrap.servers": servers})
        sizes = [int(e) for e in arguments.epochs.split(",")]
        topics = [*(f"in-{e}" for e in sizes), "out-seamark", "out-spark"]
        new = [NewTopic(topic, arguments.partitions, 1) for topic in topics]
        for created in admin.create_topics(new).values():
            created.result()
        spark = spark_session("benchmark")
        require_format(spark, "kafka")
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
        for epoch in sizes:
            rows = min(arguments.rows, epoch * EPOCHS_AT_MOST)
            fill(servers, f"in-{epoch}", rows)
            chosen = [n for n in variants(servers) if (arguments.only or "") in n]
            figures = {name: Figures() for name in chosen}
            warm_up = max(1, min(WARM_UP_EPOCHS * epoch, WARM_UP_ROWS) // rows)
            for round_ in range(-warm_up, arguments.rounds):
                rates = []
                for name, start in variants(servers).items():
                    if name not in figures:
                        continue
                    counted = figures[name] if round_ >= 0 else Figures()
                    measure(spark, servers, f"in-{epoch}", rows, epoch, start, counted)
                    rates.append(f"{name} {counted.rows_per_s[-1]:,.0f}")
                console.print(f"{'round' if round_ >= 0 else 'warm-up'}: rows/s {', '.join(rates)}")
            if arguments.only:
                console.print(figures)
            else:
                console.print(table(epoch, rows, figures))


if __name__ == "__main__":
    main()

"""What the ledger costs: a task's CPU for rows of 100 bytes into Kafka, with and without it.

    python -m benchmarks.ledger [--rows 2000000] [--rounds 5] [--whole]

With `--whole`, jobs from Kafka to Kafka, exactly-once, in epochs of a quarter of the rows, with the
ledger and without it in turns (`kafka_sink.measure`): rows a second, and CPU of all but the broker;
and the mean of the rounds' ratios with its standard error.

Without it, one process does what a task does: a real broker, `KafkaSink`'s writer, batches of
10,000 rows of key (16 bytes) and value (84 bytes), 4 partitions. Rounds alternate. CPU is that of
this process, with all threads of librdkafka. Spark's share of an epoch is not in it, so the share
of the whole is smaller than the one shown. "alone" is the ledger's work by itself, on the same
batches.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import seamark as sm
from benchmarks import kafka_sink
from seamark.checkpoint.sink_epoch import Tally
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.dev.kafka import LocalKafka
from seamark.runtime.session import require_format, spark_session
from seamark.sinks.kafka import KafkaSink

BATCH_ROWS = 10_000
WARM_UP = 3


def batches(count: int) -> list[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    found = []
    for _ in range(count):
        columns = []
        for width in (16, 84):
            data = rng.integers(0, 256, BATCH_ROWS * width, np.uint8)
            offsets = np.arange(0, BATCH_ROWS * width + 1, width, dtype=np.int32)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            columns.append(pa.Array.from_buffers(pa.binary(), BATCH_ROWS, buffers))
        found.append(pa.RecordBatch.from_arrays(columns, ["key", "value"]))
    return found


def write(sink: KafkaSink, job: str, epoch: int, rows: int, *, ledger: bool) -> float:
    """Write an epoch's rows, and commit them; return the CPU seconds of the writing."""
    given = batches(20)
    writer = sink.create_writer(WriterContext(job, "out", 1, epoch, 0, epoch, epoch - 1))
    tally = Tally(writer)
    before = time.process_time()
    for number in range(rows // BATCH_ROWS):
        batch = given[number % len(given)]
        writer.write(batch)
        if ledger:
            tally.add(batch)
    prepared = writer.prepare_commit()
    tally.close()
    took = time.process_time() - before
    committer = sink.create_committer(SinkContext(job, "bench", "out", 1, 5.0))
    committer.commit(prepared)
    committer.close()
    return took


def alone(rows: int) -> float:
    given, tally = batches(20), Tally(None)
    before = time.process_time()
    for number in range(rows // BATCH_ROWS):
        tally.add(given[number % len(given)])
    tally.close()
    return time.process_time() - before


@dataclass(frozen=True)
class LedgerSink(KafkaSink):
    """A sink that tells the worker of each task whether to keep the ledger."""

    ledger: bool = True

    def create_writer(self, context: WriterContext) -> Any:
        # Kept at the class: a worker that is used again finds `Tally.add` replaced already.
        kept = Tally.__dict__.get("kept_add") or Tally.add
        setattr(Tally, "kept_add", kept)  # noqa: B010
        Tally.add = kept if self.ledger else no_add  # type: ignore[method-assign]
        return super().create_writer(context)


def no_add(self: Tally, rows: pa.RecordBatch) -> None: ...


def whole(rows: int, rounds: int) -> None:
    found = {True: kafka_sink.Figures(), False: kafka_sink.Figures()}
    with kafka_sink.broker() as servers:
        admin = AdminClient({"bootstrap.servers": servers})
        made = admin.create_topics([NewTopic(topic, 4, 1) for topic in ("in", "out")])
        for topic in made.values():
            topic.result(30)
        spark = spark_session("ledger")
        require_format(spark, "kafka")
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
        kafka_sink.fill(servers, "in", rows)

        def start(ledger: bool, frame: DataFrame, location: str) -> StreamingQuery:
            prefix = f"ledger-{uuid.uuid4().hex[:8]}"
            sink = LedgerSink(servers, topic="out", transactional_id_prefix=prefix, ledger=ledger)
            writer = sm.write_stream(frame, sink).option("checkpointLocation", location)
            return writer.trigger(availableNow=True).start()

        for round_ in range(-WARM_UP, rounds):
            for ledger in (True, False) if round_ % 2 else (False, True):
                figures = found[ledger] if round_ >= 0 else kafka_sink.Figures()
                started = partial(start, ledger)
                kafka_sink.measure(spark, servers, "in", rows, rows // 4, started, figures)
    for ledger, figures in found.items():
        rates = sorted(figures.rows_per_s)
        print(
            f"{'with' if ledger else 'without'} the ledger: {statistics.median(rates):,.0f} rows/s "
            f"({rates[0]:,.0f} to {rates[-1]:,.0f}), "
            f"{statistics.median(figures.cpu_us_per_row):.3f} us of CPU a row"
        )
    for name, of in (
        ("rows/s", lambda figures: figures.rows_per_s),
        ("CPU", lambda figures: figures.cpu_us_per_row),
    ):
        ratios = [a / b for a, b in zip(of(found[True]), of(found[False]), strict=True)]
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        print(f"with / without, {name}: {statistics.mean(ratios):.3f} ± {error:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="whole jobs")
    given = parser.parse_args()
    if given.whole:
        whole(given.rows, given.rounds)
        return
    figures: dict[str, list[float]] = {"without": [], "with": [], "alone": []}
    with LocalKafka() as kafka:
        topic, job = "ledger", uuid.uuid4().hex
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(30)
        sink = KafkaSink(kafka.bootstrap_servers, topic=topic, transactional_id_prefix="ledger")
        for round_ in range(given.rounds + 1):
            took = {
                "without": write(sink, job, 2 * round_, given.rows, ledger=False),
                "with": write(sink, job, 2 * round_ + 1, given.rows, ledger=True),
                "alone": alone(given.rows),
            }
            if round_:  # the first one warms up
                for name, seconds in took.items():
                    figures[name].append(seconds / given.rows * 1e9)
            print({name: round(seconds / given.rows * 1e9) for name, seconds in took.items()})
    medians = {name: statistics.median(values) for name, values in figures.items()}
    print({name: f"{value:.0f} ns a row" for name, value in medians.items()})
    print(f"ledger alone / task without it: {medians['alone'] / medians['without']:.1%}")


if __name__ == "__main__":
    main()

"""What the ledger costs jobs from Kafka to Kafka, and alone.

    python -m benchmarks.ledger [--rows 3000000] [--rounds 5]

The jobs are exactly-once, of rows of 100 bytes, in epochs of a quarter of the rows, with the ledger
and without it in turns (`kafka_sink.measure`): rows a second, CPU of all but the broker, and the
mean of the rounds' ratios with its standard error. Nothing is computed in them, so the ledger
weighs most there.

"alone" is its work in one thread: batches of 10,000 rows of key (16 bytes) and value (84 bytes),
grouped by 4 partitions, with pyarrow's hash of bytes and with numpy's.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import seamark as sm
from benchmarks import kafka_sink
from seamark.checkpoint import row_hash
from seamark.checkpoint.sink_epoch import Tally
from seamark.contracts.read_back import Targets
from seamark.contracts.sink import WriterContext
from seamark.sinks.kafka import KafkaSink
from seamark.spark.session import require_format, spark_session

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


class GroupedWriter:
    """A writer whose rows go to 4 partitions at random."""

    def __init__(self) -> None:
        partitions = np.random.default_rng(2).integers(0, 4, BATCH_ROWS)
        ends = np.cumsum(np.bincount(partitions)).tolist()
        groups = [(str(p), start, end) for p, (start, end) in enumerate(pairwise([0, *ends]))]
        self._targets = Targets(np.argsort(partitions, kind="stable"), groups)

    def last_targets(self) -> Targets:
        return self._targets

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


def alone(rows: int) -> float:
    """Return nanoseconds of CPU a row."""
    given, tally = batches(20), Tally(GroupedWriter())
    before = time.thread_time()
    for number in range(rows // BATCH_ROWS):
        tally.add(given[number % len(given)])
    tally.close()
    return (time.thread_time() - before) / rows * 1e9


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
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"alone: {min(alone(given.rows) for _ in range(5)):.0f} ns a row, ", end="")
    with mock.patch.object(row_hash, "_bytes_hash", lambda: row_hash.numpy_bytes_hash):
        print(f"with numpy alone {alone(given.rows // 10):.0f}")
    whole(given.rows, given.rounds)


if __name__ == "__main__":
    main()

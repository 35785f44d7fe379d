"""One windowed Kafka stream into 1, 2 and 4 sinks that cost nothing: what each further sink adds.

    python -m benchmarks.shared_sinks [--rows 2000000] [--rounds 3]

Each sink has a column and a filter of its own. The topic has 4 partitions of small records whose
event times advance by a millisecond each; the query counts by second and key, reads all rows with
`Trigger.AvailableNow` in epochs of a tenth of them, and the last windows stay open. Variants
alternate; the first round warms up and is not counted. Time runs from the query's start to its
end, CPU is that of the driver's process tree without the broker.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence

import psutil
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import seamark as sm
from benchmarks.process_tree import cpu_s
from seamark.dev.kafka import LocalKafka
from seamark.model.guarantee import SinkWay

PARTITIONS = 4
COUNTS = (1, 2, 4)
START_MS = 1_767_225_600_000


class Discard(sm.TwoPhaseCommitSink):  # type: ignore[type-arg]
    """Takes rows and keeps none."""

    way = SinkWay.NONE

    def describe(self) -> str:
        return "nothing"

    def check_transaction_scope(self, context: sm.SinkContext) -> None:
        pass

    def create_writer(self, context: sm.WriterContext) -> Discard:
        return Discard()

    def create_committer(self, context: sm.SinkContext) -> Discard:
        return Discard()

    def dump(self, committable: object) -> bytes:
        raise NotImplementedError

    def load(self, data: bytes) -> object:
        raise NotImplementedError

    def write(self, batch: pa.RecordBatch) -> None:
        pass

    def prepare_commit(self) -> Sequence[object]:
        return ()

    def preflight(self) -> None:
        pass

    def commit(self, committables: Sequence[object]) -> Sequence[object]:
        return ()

    def abort(self, committables: Sequence[object] = ()) -> Sequence[object]:
        return ()

    def list_lingering(self) -> Iterable[object]:
        return ()

    def close(self) -> None:
        pass


def fill(servers: str, topic: str, rows: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
    for number in range(rows):
        while True:
            try:
                producer.produce(
                    topic,
                    key=str(number % 50),
                    value=json.dumps({"at": START_MS + number}),
                    partition=number % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def measure(
    servers: str, topic: str, rows: int, sinks: int, brokers: frozenset[int]
) -> tuple[float, float]:
    """Return rows a second, and CPU microseconds a row."""
    with tempfile.TemporaryDirectory() as directory:
        job = sm.Job(
            f"sinks-{sinks}-{uuid.uuid4().hex[:8]}", sm.CheckpointConfig(storage=directory)
        )
        options = {"maxOffsetsPerTrigger": rows // 10}
        records = job.source(sm.KafkaSource(servers, topic, ending="latest", options=options), "in")
        at = F.get_json_object(F.col("value").cast("string"), "$.at").cast("long")
        rows_in = records.select(F.col("key").cast("string"), F.timestamp_millis(at).alias("at"))
        late = rows_in.withWatermark("at", "5 seconds")
        counts = late.groupBy(F.window("at", "1 second").alias("w"), "key").count()
        job.uid(counts, "counts")
        for number in range(sinks):
            own = counts.filter(F.col("count") > number - 1).select("key", F.col("count") + number)
            job.sink(own, Discard(), f"sink-{number}")
        cpu, begun_s = cpu_s(brokers), time.monotonic()
        job.run()
        took_s = time.monotonic() - begun_s
        return rows / took_s, (cpu_s(brokers) - cpu) / rows * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    figures: dict[int, list[tuple[float, float]]] = {count: [] for count in COUNTS}
    with LocalKafka() as kafka:
        brokers = frozenset(p.pid for p in psutil.Process().children(recursive=True))
        topic = f"in-{uuid.uuid4().hex[:8]}"
        fill(kafka.bootstrap_servers, topic, given.rows)
        for number in range(1 + given.rounds):
            for count in COUNTS:
                found = measure(kafka.bootstrap_servers, topic, given.rows, count, brokers)
                rate, cpu = found
                print(
                    f"round {number}, {count} sinks: {rate:,.0f} rows/s, {cpu:.2f} us", flush=True
                )
                if number:
                    figures[count].append(found)
    table = Table("sinks", "rows/s", "CPU-us a row", "time against 1 sink", "CPU against 1 sink")
    one = [statistics.median(values) for values in zip(*figures[1], strict=True)]
    for count, found in figures.items():
        rate, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        table.add_row(
            str(count), f"{rate:,.0f}", f"{cpu:.2f}", f"{one[0] / rate:.2f}", f"{cpu / one[1]:.2f}"
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

"""`seamark audit` over ten million rows, with five faults among them.

    python -m benchmarks.audit [--rows 10000000] [--epochs 10]

A bounded job writes the rows into a Kafka topic (100 bytes, 4 partitions) and into Parquet files.
Its Kafka sink has a bug: it loses a row, doubles one, changes one, and exchanges two of different
epochs. Then somebody else writes a row into the topic. The audit must find these five at Kafka, and
nothing else. Prints what it took, and the findings; ends with 1 if they are not those.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from seamark.dev.kafka import LocalKafka

PROGRAM = """
import json, sys
import pyarrow as pa
import pyarrow.compute as pc
import numpy as np
import seamark as sm
from seamark.contracts.read_back import Targets
from seamark.sources.fields import Sequence
from seamark.sinks.kafka.native_producer import _grouped
from seamark.sinks.kafka.partitioner import Partitioner

given = json.loads(sys.argv[1])


class Faulty(sm.KafkaSink):
    def create_writer(self, context):
        return Writer(super().create_writer(context), self.topic)


class Writer:
    def __init__(self, writer, topic):
        self._writer, self._topic = writer, topic

    def write(self, batch):
        order, groups = _grouped(Partitioner(4, range(4)).of(batch.column("key")))
        self._targets = Targets(order, [(f"{self._topic}/{p}", s, e) for p, s, e in groups])
        number = pc.binary_slice(batch.column("value"), 0, 10).cast(pa.string()).cast(pa.int64())
        number, values = number.to_numpy(), None
        keep = np.ones(len(number), np.int64)
        keep[number == given["lose"]] = 0
        keep[number == given["double"]] = 2
        wrong = {int(a): value(b) for a, b in given["swap"].items()}
        wrong[given["change"]] = b"changed"
        if np.isin(number, list(wrong)).any():
            values = batch.column("value").to_pylist()
            for n, text in wrong.items():
                for at in np.flatnonzero(number == n):
                    values[at] = text
            batch = batch.set_column(1, "value", pa.array(values, pa.binary()))
        if (keep != 1).any():
            batch = batch.take(pa.array(np.repeat(np.arange(len(keep)), keep)))
        self._writer.write(batch)

    def last_targets(self):
        return self._targets

    def as_found(self, batch):
        return batch

    def prepare_commit(self):
        return self._writer.prepare_commit()

    def abort(self):
        self._writer.abort()


def value(n):
    return b"%010d" % n + b"x" * 80


job = sm.Job("audited", sm.CheckpointConfig(storage="store", interval="0s"))
rows = job.source(
    sm.DatagenSource(rows_per_second=1000, number_of_rows=given["rows"], partitions=4,
                     rows_per_epoch=given["rows"] // given["epochs"],
                     fields={"n": Sequence()}), uid="rows")
records = rows.selectExpr(
    "lpad(CAST(n % 1000 AS STRING), 10, '0') AS key",
    "lpad(CAST(n AS STRING), 10, '0') || repeat('x', 80) AS value")
job.sink(records, Faulty(given["servers"], topic="audited", transactional_id_prefix="audited"),
         uid="to-kafka")
job.sink(rows, sm.FileSink("out"), uid="to-files")
if __name__ == "__main__":
    job.run()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    epoch = given.rows // given.epochs // 1000 * 1000
    swap = {str(3 * epoch + 77): 4 * epoch + 77, str(4 * epoch + 77): 3 * epoch + 77}
    with tempfile.TemporaryDirectory() as directory, LocalKafka() as kafka:
        (Path(directory) / "app.py").write_text(PROGRAM)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("audited", 4, 1)])["audited"].result(30)
        arguments = json.dumps(
            {
                "rows": given.rows, "epochs": given.epochs, "servers": kafka.bootstrap_servers,
                "lose": 5, "double": epoch + 5, "change": 2 * epoch + 5, "swap": swap,
            }
        )  # fmt: skip

        def python(*command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, *command], cwd=directory, check=False, text=True,
                stdout=subprocess.PIPE,
            )  # fmt: skip

        begun = time.monotonic()
        ran = python("app.py", arguments)
        print(f"the job: {time.monotonic() - begun:.1f} s, exit code {ran.returncode}")
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce("audited", b"hello", b"7")
        producer.flush(30)
        begun, cpu = time.monotonic(), os.times().children_user
        done = python("-m", "seamark", "audit", "--json", "app.py", arguments)
        cpu = os.times().children_user - cpu
        print(f"the audit: {time.monotonic() - begun:.1f} s, {cpu:.1f} s of CPU")
    sinks = {sink["sink"]: sink for sink in json.loads(done.stdout)["sinks"]}
    for sink in sinks.values():
        print(sink["sink"], sink["compared"], sink["expected-rows"], sink["found-rows"])
        for finding in sink["findings"]:
            print("  ", finding["text"])
    found = sorted(finding["fault"] for finding in sinks["to-kafka"]["findings"])
    expected = ["changed", "doubled", "foreign", "missing", "swapped"]
    if found != expected or sinks["to-files"]["findings"]:
        sys.exit(f"the findings at Kafka are {found}, not {expected}")


if __name__ == "__main__":
    main()

"""Kafka to Kafka behind a shuffle, and counts to SQLite, with a sink for hanging on demand.

With the option `keyed`, a slow, unaligned keyed function stands before the shuffle, which has a
single task behind it, and there are no counts.

An attempt takes the file `armed` away from the directory `trouble`, if it finds it, writes down its
own identity, and hangs: flushed, with its transaction open.
"""

import json
import logging
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as F

import seamark as sm

options = json.loads(sys.argv[1])
TROUBLE = options["trouble"]
UNALIGNED = {
    "state_backend": "rocksdb",
    "unaligned": True,
    "aligned_timeout": "2s",
    "restart_strategy": sm.RestartStrategy.fixed_delay(),
}
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("kafka").setLevel(logging.WARNING)
logging.getLogger("py4j").setLevel(logging.WARNING)


class HangingWriter:
    """A KafkaWriter, but for the end of `prepare_commit`."""

    def __init__(self, writer, epoch):
        self.write, self.abort = writer.write, writer.abort
        self._writer, self._epoch = writer, epoch

    def prepare_commit(self):
        import os

        committables = self._writer.prepare_commit()
        taken = Path(TROUBLE, "taken")
        if committables:
            try:
                Path(TROUBLE, "armed").rename(taken)
            except FileNotFoundError:
                return committables
            task = TaskContext.get()
            who = {
                "pid": os.getpid(),
                "task": task.taskAttemptId(),
                "stage": task.stageId(),
                "index": task.partitionId(),
                "epoch": self._epoch,
                "transaction": committables[0].transactional_id,
                "code": sm.__file__,
            }
            taken.write_text(json.dumps(who))
            taken.rename(taken.with_suffix(".json"))
            time.sleep(600)
        return committables


@dataclass(frozen=True)
class HangingSink(sm.KafkaSink):
    def create_writer(self, context):
        return HangingWriter(super().create_writer(context), context.epoch)


class Slow(sm.KeyedProcessFunction):
    """Passes rows on, at no even pace: two runs of a task end an epoch at different rows."""

    def process_element(self, row, context):
        time.sleep(random.uniform(0.01, 0.03))
        yield row.key, row.value


keyed = options.get("keyed", False)
job = sm.Job(
    "cluster",
    checkpoint=sm.CheckpointConfig(
        storage=options["storage"],
        interval=options["interval"],
        timeout=options["timeout"],
        **(UNALIGNED if keyed else {}),
    ),
    # On the cluster: its address is found by itself. Elsewhere nobody asks it.
    rest=sm.RestConfig(address="0.0.0.0"),
)
source = sm.KafkaSource(options["servers"], topics=[options["input"]], starting_offsets="earliest")
rows = job.source(source, uid="input").selectExpr(
    "CAST(key AS STRING) AS key",
    "CAST(value AS STRING) AS value",
    "timestamp_millis(CAST(split_part(CAST(value AS STRING), ',', 2) AS BIGINT)) AS time",
)
if keyed:
    schema = "key STRING, value STRING"
    passed = sm.keyed_process(rows, "key", Slow(), uid="slow", output_schema=schema)
else:
    passed = rows.select("key", "value")
counts = (
    rows.withWatermark("time", "2 seconds").groupBy(F.window("time", "10 seconds"), "key").count()
)
job.sink(
    passed.repartition(1 if keyed else 2, "key"),
    HangingSink(
        options["servers"],
        topic=options["output"],
        transactional_id_prefix=options["prefix"],
        transaction_timeout=options["transaction_timeout"],
    ),
    uid="rows-to-kafka",
)
if not keyed:
    job.uid(counts, "per-window")
    job.sink(
        counts.selectExpr("key", "concat(unix_millis(window.start), ',', count) AS value"),
        sm.SQLiteSink(options["database"], table="windows"),
        uid="windows-to-sqlite",
    )

if __name__ == "__main__":
    job.run(options.get("restore"), parallelism=options.get("parallelism"))

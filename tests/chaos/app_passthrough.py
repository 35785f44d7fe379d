"""Kafka to Kafka, stateless, as a user writes it: ``python app_passthrough.py '{"servers": …}'``.

`raise_once` makes the first attempt of a task fail; `slow_s` makes each row slow, `slow_sink` its
sink. With `python` the rows pass a function in Python.
"""

import json
import logging
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

import seamark as sm
from tests.chaos.slow_sink import SlowKafkaSink

options = json.loads(sys.argv[1])
marker, slow_s = options.get("raise_once"), options.get("slow_s", 0.0)


def troubled(value: bytes) -> bytes:
    time.sleep(slow_s)
    if marker and int(value.split(b",")[0]) >= 200:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return value
        raise RuntimeError("the first attempt fails, in the middle of its rows")
    return value


logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("kafka").setLevel(logging.WARNING)
logging.getLogger("py4j").setLevel(logging.WARNING)
job = sm.Job(
    "passthrough",
    checkpoint=sm.CheckpointConfig(
        storage=options["storage"],
        interval=options["interval"],
        timeout=options["timeout"],
        unaligned="aligned_timeout" in options,
        aligned_timeout=options.get("aligned_timeout", 0),
        mode=options.get("mode", "exactly-once"),
    ),
)
rows = job.source(
    sm.KafkaSource(
        options["servers"],
        topics=[options["input"]],
        starting_offsets="earliest",
        ending=options.get("ending", "never"),
        options=options.get("source_options", {}),
    ),
    uid="input",
)
if "log_level" in options:
    rows.sparkSession.sparkContext.setLogLevel(options["log_level"])
value = F.udf(troubled, BinaryType())("value") if marker or slow_s else F.col("value")
passed = rows.select("key", value.alias("value"))
if options.get("python"):
    passed = sm.process(passed, lambda batch: batch, "key BINARY, value BINARY", uid="same")
job.sink(
    passed,
    (SlowKafkaSink if options.get("slow_sink") else sm.KafkaSink)(
        options["servers"],
        topic=options["output"],
        delivery_guarantee=options.get("delivery", "exactly-once"),
        transactional_id_prefix=options["prefix"],
        transaction_timeout=options["transaction_timeout"],
        producer_options=options.get("producer_options", {}),
        spool=options.get("spool", False),
    ),
    uid="output",
)

if __name__ == "__main__":
    gate = options.get("gate")  # the harness holds a driver here until its turn comes
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    job.run(execution=options.get("execution", "micro-batch"))

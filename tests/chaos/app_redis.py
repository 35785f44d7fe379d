"""One file of rows, each row its own Arrow batch and a little late, into two keys of Redis: one by
upserts and one by stages. The input's columns are `key` and `value`, in the order of the values.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    .getOrCreate()
)


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(options["slow_s"])
        yield batch


schema = "key STRING, value STRING"
job = sm.Job("redis", checkpoint=sm.CheckpointConfig(storage=options["storage"], interval="100ms"))
rows = job.source(sm.FileSource(options["input"], format="json", schema=schema), uid="input")
slow = rows.mapInArrow(slowly, schema)
for mode in ("upsert", "staged"):
    sink = sm.RedisSink(options["url"], "key", "value", mode=mode, key_prefix=f"{mode}:")
    job.sink(slow, sink, uid=mode)

if __name__ == "__main__":
    job.run()

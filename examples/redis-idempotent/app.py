"""A counter into one key of Redis, ten values an epoch and five a second."""

import os
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import seamark as sm
from seamark.sources.fields import Sequence

url = os.environ.get("REDIS", "redis://localhost:6379/0")
# Each row by itself from task to task, so that a reader has the time to see its value.
row_by_row = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
}
SparkSession.builder.config(map=row_by_row).getOrCreate()

job = sm.Job("counter", sm.CheckpointConfig(storage="checkpoints"))
numbers = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=30,
        rows_per_epoch=10,
        partitions=1,
        fields={"n": Sequence(start=1)},
    ),
    uid="numbers",
)


def slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(0.2)
        yield batch


rows = numbers.selectExpr("'counter' AS name", "string(n) AS n")
slow = rows.mapInArrow(slowly, "name STRING, n STRING")
job.sink(slow, sm.RedisSink(url, key="name", value="n"), uid="redis")

if __name__ == "__main__":
    job.run()

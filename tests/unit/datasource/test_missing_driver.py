"""An executor whose Python lacks a sink's driver: the task is refused in one line that names the
package and the remedy, before a row is written.

How: a Python process that refuses to import the driver runs a batch's task as Spark's worker does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

from seamark.datasource.columns import Projection
from seamark.datasource.options import sink_of_options
from seamark.datasource.writers import BatchWriter
from seamark.model.schema import Column
from seamark.protocol.batches import Try

TASK = """
import pickle, sys
from pathlib import Path

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refused())
from pyspark import TaskContext
writer, batch = pickle.loads(Path({task!r}).read_bytes())
task = TaskContext._getOrCreate()
task._partitionId, task._attemptNumber, task._taskAttemptId = 0, 0, 0
task._localProperties = {{"streaming.sql.batchId": "0", "sql.streaming.queryId": "q"}}
try:
    writer.write(iter([batch]))
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}")
"""
IDS = StructType([StructField("id", LongType())])
RECORDS = StructType([StructField("key", StringType()), StructField("value", StringType())])
SINKS = {
    "kafka": ("confluent_kafka", {"bootstrap_servers": "localhost:1", "topic": "t"}, RECORDS),
    "postgres": ("psycopg", {"url": "postgresql://a@localhost:1/d", "table": "t"}, IDS),
    "mysql": ("pymysql", {"url": "mysql://a@localhost:1/d", "table": "t"}, IDS),
    "redis": ("redis", {"url": "redis://localhost:1", "key": "key"}, RECORDS),
}
"""The driver's package, the options, the columns. Tasks of other sinks need no driver."""


@pytest.mark.parametrize("name", SINKS)
def test_refused_before_a_row_is_written(name: str, tmp_path: Path) -> None:
    package, given, columns = SINKS[name]
    options = {"sink": name, "checkpointlocation": f"{tmp_path}/checkpoint", **given}
    schema = tuple(Column(f.name, f.dataType.simpleString()) for f in columns.fields)
    projection = Projection.of(sink_of_options(options), schema)
    writer = BatchWriter(options, "0" * 32, "", projection, Try(1, 1, None))
    rows = {"id": [1]} if columns is IDS else {"key": ["a"], "value": ["b"]}
    (tmp_path / "task").write_bytes(cloudpickle.dumps((writer, pa.RecordBatch.from_pydict(rows))))
    program = TASK.format(package=package, task=f"{tmp_path}/task")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (said,) = done.stdout.splitlines()
    assert f"No module named {package!r}" in said
    assert f"pip install 'pyspark-seamark[{name}]', into the Python of Spark's executors" in said
    assert sys.executable in said

"""Files to a windowed count, into SQLite and Parquet files: no server at all.

The input's columns are `key` and `value` (``sequence,time_ms``); the counts' values
``window start in ms,count``.
"""

import json
import logging
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

import tidemark as tm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
job = tm.Job(
    "embedded",
    checkpoint=tm.CheckpointConfig(storage=options["storage"], interval=options["interval"]),
)
source = tm.FileSource(options["input"], format="json", schema="key STRING, value STRING")
rows = job.source(source, uid="input").selectExpr(
    "key", "timestamp_millis(CAST(split_part(value, ',', 2) AS BIGINT)) AS time"
)
counts = (
    rows.withWatermark("time", "2 seconds").groupBy(F.window("time", "10 seconds"), "key").count()
)
job.uid(counts, "per-window")
shown = counts.selectExpr("key", "concat(unix_millis(window.start), ',', count) AS value")
job.sink(shown, tm.SQLiteSink(options["database"], table="windows"), uid="to-sqlite")
job.sink(shown, tm.FileSink(options["files"], format="parquet"), uid="to-files")

if __name__ == "__main__":
    gate = options.get("gate")  # the harness holds a driver here until its turn comes
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    job.run()

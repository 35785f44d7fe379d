"""Files into MariaDB, in all three ways at once: the rows themselves by XA transactions and by
stages, and a count of each window merged by key.

The input's columns are `key` and `value` (``sequence,time_ms``); a count's value is ``window start
in ms,count``.
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
    "mysql",
    checkpoint=tm.CheckpointConfig(storage=options["storage"], interval=options["interval"]),
)
rows = job.source(
    tm.FileSource(options["input"], format="json", schema="key STRING, value STRING"), uid="input"
)
counts = (
    rows.withColumn("time", F.expr("timestamp_millis(CAST(split_part(value, ',', 2) AS BIGINT))"))
    .withWatermark("time", "2 seconds")
    .groupBy(F.window("time", "10 seconds"), "key")
    .count()
)
job.uid(counts, "per-window")
shown = counts.selectExpr("key", "concat(unix_millis(window.start), ',', count) AS value")
for table, frame, mode, keys in (
    ("events", rows, "xa", []),
    ("staged", rows, "staged", []),
    ("windows", shown, "upsert", ["key", "value"]),
):
    sink = tm.MySQLSink(options["url"], table, mode, keys=keys, create_table=True)
    job.sink(frame, sink, uid=f"{table}-to-mysql")

if __name__ == "__main__":
    gate = options.get("gate")  # the harness holds a driver here until its turn comes
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    job.run()

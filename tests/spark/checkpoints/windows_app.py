"""Counts rows in windows of ten seconds, to the source's end; its argument: `home`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

import seamark as sm

home = Path(json.loads(sys.argv[1])["home"])
job = sm.Job("windows", sm.CheckpointConfig(storage=str(home / "store")))
source = sm.FileSource(
    str(home / "in"), "json", "second BIGINT", ending="latest", options={"maxFilesPerTrigger": "1"}
)
times = job.source(source, "in").select(F.timestamp_seconds("second").alias("at"))
counts = times.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds")).count()
job.uid(counts, "counts")
starts = counts.select(F.unix_seconds("window.start").alias("start"), "count")
job.sink(starts, sm.SQLiteSink(str(home / "out.db"), table="t"), "out")
job.run(parallelism=2)

"""A job with an operator of each of the kinds it is told, to be stopped and killed.

Its argument is JSON: `name`; `kinds` of `stateful_programs.PROGRAMS`; `config`; `files`: when so
many are through, it ends, with a savepoint if it is to make one: `<name>.path` says where.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import functions as F

import seamark as sm
from seamark.spark.session import spark_session
from tests.spark.savepoints.stateful_programs import PROGRAMS

asked = json.loads(sys.argv[1])
name = asked["name"]
spark = spark_session(name)
# Without new files there is no epoch: a file is an epoch here, whatever the timing.
spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
job = sm.Job(name, sm.CheckpointConfig(storage="store", interval="50ms", **asked["config"]))
source = sm.FileSource(
    "in", format="json", schema="k int, v int, ts long", options={"maxFilesPerTrigger": "1"}
)
events = (
    job.source(source, "events")
    .withColumn("at", F.timestamp_seconds("ts"))
    .withWatermark("at", "5 seconds")
)
for kind in asked["kinds"]:
    out = job.uid(PROGRAMS[kind](events, events), kind)
    job.sink(out, sm.FileSink(f"out/{name}/{kind}", format="json"), f"{kind}-out")


def through() -> bool:
    try:
        return job.checkpoints().counts.completed >= asked["files"]
    except sm.SeamarkError:  # nothing is there yet
        return False


def end() -> None:
    while not through():
        time.sleep(0.1)
    if asked["savepoint"]:
        path = job.stop_with_savepoint("savepoints").result()
        Path(f"{name}.path").write_text(path)
    else:
        job.stop()


threading.Thread(target=end, daemon=True).start()
job.run()

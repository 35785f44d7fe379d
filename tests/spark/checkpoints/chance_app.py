"""A job whose replayed epochs compute other values; its argument: `home`, `config`, `until`.

Each row gets a random id; the state collects the ids of each key, and the sink is given all of
them after each epoch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

import seamark as sm


class Changes(sm.SQLiteSink):
    """Keeps what each epoch gives, one behind another."""

    output_modes = ("append", "update")


asked = json.loads(sys.argv[1])
home = Path(asked["home"])
job = sm.Job(
    "chance",
    sm.CheckpointConfig(storage=str(home / "store"), **asked["config"]),
    output_mode="update",
)
source = sm.FileSource(
    str(home / "in"), "json", "k STRING", ending="latest", options={"maxFilesPerTrigger": 1}
)
ids = job.source(source, "in").withColumn("id", F.expr("uuid()"))
collected = ids.groupBy("k").agg(F.collect_list("id").alias("ids"))
job.uid(collected, "ids")
rows = collected.select("k", F.to_json("ids").alias("ids"))
job.sink(rows, Changes(str(home / "out.db"), table="t"), "out")
job.run(parallelism=2)

"""Files, or a topic, into whatever sinks the options name: the rows, or counts of their windows.

The input's columns are `key` and `value` (``sequence,time_ms``); a count's value is ``window start
in ms,count``. An entry of ``options["sinks"]`` has a `uid`, the `frame` it gets (``rows`` or
``counts``), and its maker: the name of a class of `seamark`, or ``module:function``, with keyword
arguments; `dead_letters` is None, or another maker. `tests/chaos/outputs.py` makes the entries.
"""

import importlib
import json
import logging
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("kafka").setLevel(logging.WARNING)
logging.getLogger("py4j").setLevel(logging.WARNING)
job = sm.Job(
    options.get("name", "sinks"),
    checkpoint=sm.CheckpointConfig(
        storage=options["storage"], interval=options["interval"], **options.get("settings", {})
    ),
)
if "servers" in options:
    source = sm.KafkaSource(
        options["servers"], topics=[options["input"]], starting_offsets="earliest"
    )
    read = job.source(source, uid="input")
    rows = read.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
else:
    source = sm.FileSource(
        options["input"],
        format="json",
        schema="key STRING, value STRING",
        # Files piled up while drivers were dead are not one epoch of hundreds of tasks.
        options={"maxFilesPerTrigger": "400"},
    )
    rows = job.source(source, uid="input")
frames = {"rows": rows}
if any(one["frame"] == "counts" for one in options["sinks"]):
    time_ms = "timestamp_millis(CAST(split_part(value, ',', 2) AS BIGINT))"
    counts = (
        rows.selectExpr("key", f"{time_ms} AS time")
        .withWatermark("time", "2 seconds")
        .groupBy(F.window("time", "10 seconds"), "key")
        .count()
    )
    job.uid(counts, "per-window")
    frames["counts"] = counts.selectExpr(
        "key", "concat(unix_millis(window.start), ',', count) AS value"
    )


def made(maker, arguments):
    module, _, name = maker.rpartition(":")
    return getattr(importlib.import_module(module or "seamark"), name)(**arguments)


for one in options["sinks"]:
    letters = one["dead_letters"]
    job.sink(
        frames[one["frame"]],
        made(one["maker"], one["arguments"]),
        uid=one["uid"],
        on_bad_row="dead_letter" if letters else "fail",
        dead_letters=made(**letters) if letters else None,
    )

if __name__ == "__main__":
    gate = options.get("gate")  # the harness holds a driver here until its turn comes
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    job.run(parallelism=options.get("parallelism"))

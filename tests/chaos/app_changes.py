"""Debezium's changes from Kafka to tables, as a user writes it: ``python app_changes.py '{…}'``."""

import json
import logging
import sys
import time
from pathlib import Path

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("kafka").setLevel(logging.WARNING)
logging.getLogger("py4j").setLevel(logging.WARNING)
job = sm.Job(
    "changes", sm.CheckpointConfig(storage=options["storage"], interval=options["interval"])
)
changes = job.source(sm.KafkaSource(options["servers"], topics=options["input"]), uid="input")
orders = sm.debezium(changes, "id BIGINT, name STRING, amount DECIMAL(9,2)", "id")
for uid, (kind, arguments) in options["sinks"].items():
    job.sink(orders, getattr(sm, kind)(**arguments, op="op"), uid=uid)

if __name__ == "__main__":
    gate = options.get("gate")  # the harness holds a driver here until its turn comes
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    job.run()

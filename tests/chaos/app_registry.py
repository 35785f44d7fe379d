"""Avro records from Kafka to a table, unreadable ones to another, as a user writes it:
``python app_registry.py '{…}'``."""

import json
import logging
import sys
import time
from pathlib import Path

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
job = sm.Job("orders", sm.CheckpointConfig(storage=options["storage"], interval="200ms"))
source = sm.KafkaSource(
    options["servers"],
    topics=options["input"],
    value_format="avro",
    schema_registry=options["registry"],
    value_schema=2,
    on_bad_row="keep",
)
records = job.source(source, uid="input")
orders = records.where("value IS NOT NULL").select("value.*")
unreadable = records.where("unreadable IS NOT NULL").selectExpr(
    "topic", "partition", "offset", "unreadable.reason", "unreadable.value AS record"
)
job.sink(orders, sm.SQLiteSink(options["database"], "orders"), uid="orders")
job.sink(unreadable, sm.SQLiteSink(options["database"], "bad"), uid="bad")

if __name__ == "__main__":
    gate = options.get("gate")  # the harness holds a driver here until its turn comes
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    job.run()

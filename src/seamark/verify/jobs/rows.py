"""Kafka's rows as they are, to Kafka and, if options name a database, to PostgreSQL as well:
``python rows.py '{"servers": …}'``."""

import json
import logging
import sys

import seamark as sm

options = json.loads(sys.argv[1])
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("kafka").setLevel(logging.WARNING)
logging.getLogger("py4j").setLevel(logging.WARNING)
job = sm.Job(
    "rows",
    checkpoint=sm.CheckpointConfig(
        storage=options["storage"], interval=options["interval"], timeout=options["timeout"]
    ),
)
rows = job.source(
    sm.KafkaSource(options["servers"], topics=[options["input"]], starting_offsets="earliest"),
    uid="input",
).selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
job.sink(
    rows,
    sm.KafkaSink(
        options["servers"],
        topic=options["output"],
        transactional_id_prefix=options["prefix"],
        transaction_timeout=options["transaction_timeout"],
    ),
    uid="to-kafka",
)
if "postgres" in options:
    job.sink(
        rows,
        sm.PostgresSink(options["postgres"], table="verify_rows", mode="prepared"),
        uid="to-postgres",
    )

if __name__ == "__main__":
    job.run()

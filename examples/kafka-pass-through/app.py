"""Kafka to Kafka, each row exactly once into the topic `copies`."""

import os

import seamark as sm

servers = os.environ.get("KAFKA", "localhost:9092")

# A transaction stays open from its first row to its commit: interval and timeout are together less
# than its own time-out, which is at most the broker's 15 minutes.
job = sm.Job("pass-through", sm.CheckpointConfig(storage="checkpoints", timeout="5min"))

rows = job.source(
    sm.KafkaSource(
        servers,
        topics="originals",
        group_id="pass-through",  # where Kafka's lag tools find the job's offsets
        ending="latest",  # ends with what is there at the start; leave it out to go on
        options={"maxOffsetsPerTrigger": 100},
    ),
    uid="originals",
)
job.sink(
    rows.select("key", "value"),
    sm.KafkaSink(
        servers,
        topic="copies",
        delivery_guarantee="exactly-once",
        transactional_id_prefix="pass-through",
        transaction_timeout="10min",
    ),
    uid="copies",
)

if __name__ == "__main__":
    job.run()

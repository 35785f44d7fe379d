"""Orders into a topic and a table: one checkpoint over both."""

import os

import seamark as sm
from seamark.sources.fields import Choice, RandomInt, Sequence

servers = os.environ.get("KAFKA", "localhost:9092")
url = os.environ.get("POSTGRES", "postgresql://postgres@localhost:5432/postgres")

job = sm.Job("orders", sm.CheckpointConfig(storage="checkpoints", timeout="5min"))
orders = job.source(
    sm.DatagenSource(
        rows_per_second=10,
        number_of_rows=60,
        rows_per_epoch=20,
        fields={
            "id": Sequence(),
            "product": Choice(["pen", "ink", "paper"]),
            "amount": RandomInt(1, 100),
        },
    ),
    uid="orders",
)
to_ship = orders.selectExpr("string(id) AS key", "to_json(struct(*)) AS value")
kafka = sm.KafkaSink(servers, topic="to-ship", transactional_id_prefix="orders")
job.sink(to_ship, kafka, uid="kafka")
job.sink(orders, sm.PostgresSink(url, table="orders"), uid="postgres")

if __name__ == "__main__":
    job.run()

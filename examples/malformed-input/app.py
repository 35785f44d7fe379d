"""Lines of JSON into one directory, those that are no order into another, with the reason."""

from pyspark.sql import functions as F

import seamark as sm

ORDER = "id BIGINT, price DECIMAL(9,2), at TIMESTAMP"

job = sm.Job("orders", sm.CheckpointConfig(storage="checkpoints"))
lines = job.source(sm.FileSource("in", format="text", ending="latest"), uid="lines")
values = F.expr("size(try_variant_get(try_parse_json('[' || value || ']'), '$', 'array<variant>'))")
row = F.from_json("value", f"{ORDER}, corrupt STRING", {"columnNameOfCorruptRecord": "corrupt"})
read = lines.select("value", row.alias("row")).withColumn(
    "reason",
    F.when(~values.eqNullSafe(1), "not one JSON value")
    .when(F.col("row.corrupt").isNotNull(), f"an object with other types than {ORDER}")
    .when(F.col("row.id").isNull(), "no id"),
)
orders = read.where("reason IS NULL").select("row.*").drop("corrupt")
refused = read.where("reason IS NOT NULL").select("value", "reason")
job.sink(orders, sm.FileSink("orders", "json"), uid="orders")
job.sink(refused, sm.FileSink("refused", "json"), uid="refused")

if __name__ == "__main__":
    job.run()

"""The same query, moved over: pages of `in/`, counted, into Kafka."""

import os

from pyspark.sql import SparkSession

import seamark as sm

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()

pages = (
    spark.readStream.schema("page STRING").option("maxFilesPerTrigger", 1).json("in")
    .groupBy("page").count().selectExpr("page AS key", "string(count) AS value")
)  # fmt: skip
writer = sm.write_stream(pages)
query = (
    writer.outputMode("update")
    .format("kafka")
    .option("kafka.bootstrap.servers", os.environ.get("KAFKA", "localhost:9092"))
    .option("topic", "pages")
    .option("checkpointLocation", "checkpoints/pages")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

"""JSON files of `in/` into the table `orders` of `orders.db`, both beside the pipeline's file."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).resolve().parents[1]

spark = SparkSession.active()

dp.create_sink(
    "orders", "seamark", {"sink": "sqlite", "path": str(HERE / "orders.db"), "table": "orders"}
)


@dp.append_flow(target="orders", name="orders_from_files")
def orders_from_files() -> DataFrame:
    """Read one file a batch."""
    reader = spark.readStream.schema("id long, name string").option("maxFilesPerTrigger", 1)
    return reader.json(str(HERE / "in"))

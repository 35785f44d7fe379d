"""A program with delta-spark: each line of its input is a JSON text, a statement of SQL; it answers
each with one line ``answer <JSON list of rows>``. Arguments: the class path of Delta's jars."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(sys.argv[1:]))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        # It lives for some ten statements: compiling for speed costs more than it gains.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.sources.parallelPartitionDiscovery.parallelism", "1")  # VACUUM's listing
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    for line in sys.stdin:
        rows = [json.loads(row) for row in spark.sql(json.loads(line)).toJSON().collect()]
        print("answer", json.dumps(rows), flush=True)

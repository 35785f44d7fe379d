"""A query of ``format("seamark")`` over JSON files, one a batch, to its end; without `import
seamark`: through the Spark Connect server of SPARK_REMOTE, or else classic.

Options: `directory` (its `in` has the files), `options` of the writer, `select` (expressions, if
the rows are not taken as they are), `trigger`, `output_mode`, `for_s` (else to its end), `master`,
`conf` (Spark's settings).
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

SCHEMA = "id long, name string"

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    for name, text in given.get("conf", {}).items():
        builder = builder.config(name, text)
    if "SPARK_REMOTE" not in os.environ:
        builder = builder.master(given.get("master", "local[2]"))
    spark = builder.getOrCreate()
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    rows = reader.json(f"{given['directory']}/in").repartition(2)
    if "select" in given:
        rows = rows.selectExpr(*given["select"])
    writer = rows.writeStream.format("seamark").options(**given["options"])
    writer = writer.option("checkpointLocation", f"{given['directory']}/checkpoint")
    writer = writer.trigger(**given.get("trigger", {"availableNow": True}))
    query = writer.outputMode(given.get("output_mode", "append")).start()
    print("STARTED", flush=True)
    query.awaitTermination(given.get("for_s"))
    print("ENDED", flush=True)

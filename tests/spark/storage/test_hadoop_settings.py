"""The workers' knowledge of Spark's Hadoop configuration: a real session's, set in each way."""

from __future__ import annotations

from pyspark.sql import SparkSession

from seamark.spark.hadoop_files import hadoop_settings


def test_what_was_set_is_found_unchanged_and_defaults_are_left_out(spark: SparkSession) -> None:
    given = {
        "fs.s3a.bucket.b.secret.key": "a+b/c= <&>",  # Hadoop's own dumps of itself blank secrets
        "fs.s3a.endpoint": "http://${example.host}:9000",
        "example.host": "store.example",
        "dfs.nameservices": "ns",
    }
    for key, value in given.items():
        spark.conf.set(key, value)
    base = spark._jsc.hadoopConfiguration()
    base.set("fs.s3a.path.style.access", "true")
    try:
        found = hadoop_settings(spark)
    finally:
        for key in given:
            spark.conf.unset(key)
        base.unset("fs.s3a.path.style.access")
    assert found["fs.s3a.bucket.b.secret.key"] == "a+b/c= <&>"
    assert found["fs.s3a.endpoint"] == "http://store.example:9000"
    assert found["dfs.nameservices"] == "ns"
    assert found["fs.s3a.path.style.access"] == "true"
    assert "example.host" not in found
    assert "fs.s3a.connection.maximum" not in found  # one of some hundred defaults
    assert len(found) < 50, list(found)

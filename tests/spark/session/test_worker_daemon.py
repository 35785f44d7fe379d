"""The Python workers of a session made here import PySpark as installed, compiled, and not out of
Spark's zip file."""

from __future__ import annotations

import sys

import pyspark
from pyspark.sql import SparkSession


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    found = spark.sparkContext.range(2).map(lambda _: sys.modules["pyspark"].__file__)
    assert found.distinct().collect() == [pyspark.__file__]

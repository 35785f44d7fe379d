"""One real Spark session for all tests of this folder, made as a job makes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from seamark.runtime.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    yield spark_session("tests")


@pytest.fixture
def rate(spark: SparkSession) -> object:
    return spark.readStream.format("rate").option("rowsPerSecond", 500).load()

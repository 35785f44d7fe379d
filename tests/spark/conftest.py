"""One real Spark session for all tests of this folder, made as a job makes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tidemark.model.errors import MissingDependencyError
from tidemark.runtime.session import spark_session
from tidemark.runtime.storage_jars import s3a_jars


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # With the S3 connector, if it can be had: a session that exists can't be given jars.
    storage = "s3a://any"
    try:
        s3a_jars()
    except MissingDependencyError:
        storage = ""
    yield spark_session("tests", storage)


@pytest.fixture
def rate(spark: SparkSession) -> object:
    return spark.readStream.format("rate").option("rowsPerSecond", 500).load()

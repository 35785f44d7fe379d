"""One real Spark session for all tests of this folder, made as a job makes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from seamark.runtime.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    yield spark_session("tests")


@pytest.fixture(autouse=True, scope="module")
def no_view_is_left() -> Iterator[None]:
    """A view of one file would hide a table of another."""
    yield
    session = SparkSession._instantiatedSession
    if session is not None:
        with contextlib.suppress(Exception):  # its JVM is gone
            session._jsparkSession.sessionState().catalog().clearTempTables()


@pytest.fixture
def rate(spark: SparkSession) -> object:
    return spark.readStream.format("rate").option("rowsPerSecond", 500).load()

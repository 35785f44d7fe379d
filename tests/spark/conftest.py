"""One real Spark session for all tests of this folder, made as a job makes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from seamark.spark.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    make_the_first_active()  # a test of another folder may have left a clone
    yield spark_session("tests")


@pytest.fixture(autouse=True, scope="module")
def no_view_is_left() -> Iterator[None]:
    """A view of one file would hide a table of another; and another session than the first, which
    PySpark makes this thread's active one now and then, has not the settings of the next file."""
    make_the_first_active()
    yield
    if (session := make_the_first_active()) is not None:
        with contextlib.suppress(Exception):  # its JVM is gone
            session._jsparkSession.sessionState().catalog().clearTempTables()


def make_the_first_active() -> SparkSession | None:
    """Make the process's first session this thread's active one; return it."""
    session = SparkSession._instantiatedSession
    if session is not None:
        with contextlib.suppress(Exception):  # its JVM is gone
            session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
                session._jsparkSession
            )
    return session


@pytest.fixture
def rate(spark: SparkSession) -> object:
    return spark.readStream.format("rate").option("rowsPerSecond", 500).load()

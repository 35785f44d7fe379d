"""Rows that Kafka has deleted unread, known by the words of Spark's source. On a real broker:
`tests/integration/kafka/test_kafka_source.py`."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from seamark.model.errors import RowsDeletedError, UserError
from seamark.run.failures import Verdict, judge, of_source

SPARK = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. Traceback (most recent call last):
Caused by: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost
If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.
Reason: {}
\tat org.apache.spark.sql.kafka010.KafkaExceptions$.x(KafkaExceptions.scala:88)
"""  # noqa: E501


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "Could not read records in offset [3, 7) for topic partition clicks-0\n"
            "with consumer group spark-kafka-source-1-2-executor.",
            "Could not read records in offset [3, 7) for topic partition clicks-0. Nothing",
        ),
        ("Partitions clicks-1 have been deleted.", "Partitions clicks-1 have been deleted. No"),
    ],
)
def test_rows_deleted_unread_are_named_and_no_restart_brings_them_back(
    reason: str, told: str
) -> None:
    error = of_source(StreamingQueryException(SPARK.format(reason)), "shop")
    assert isinstance(error, RowsDeletedError)
    assert told in str(error)
    assert "\n" not in str(error)
    assert judge(error, first_start=False) is Verdict.FATAL


def test_a_file_source_in_anothers_place_is_told() -> None:
    """As Spark says it; with Spark: `tests/spark/jobs/test_failed_start.py`."""
    said = "with exception: Wrong basePath a b for the root path: file:/b/0.json SQLSTATE: XXKST"
    error = of_source(StreamingQueryException(said), "shop")
    assert isinstance(error, UserError)
    assert "reads a b, and the one in its place has read file:/b/0.json: Spark" in str(error)


def test_any_other_error_stays() -> None:
    for error in (StreamingQueryException("failOnDataLoss"), ValueError("Reason: x")):
        assert of_source(error, "shop") is error

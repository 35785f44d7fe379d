"""`write_stream`: one streaming DataFrame into one sink, as a query of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from seamark.api.config import CheckpointConfig, storage_uri
from seamark.api.declarations import JobDeclaration
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.model.errors import ConfigurationError
from seamark.runtime.declaring import declare_sinks
from seamark.runtime.job_plan import JobPlan
from seamark.runtime.log_redaction import RedactedLog, job_redactor
from seamark.runtime.query import StreamRun
from seamark.runtime.session import spark_session


class _Query(JobDeclaration):
    """A query without a job: Spark judges its name and its output mode."""

    def __post_init__(self) -> None:
        pass


def write_stream(
    dataframe: DataFrame,
    sink: TwoPhaseCommitSink[Any],
    *,
    checkpoint_location: str,
    trigger: Mapping[str, Any] | None = None,
    output_mode: str = "append",
    query_name: str = "seamark",
    on_bad_row: Literal["fail", "dead_letter"] = "fail",
    dead_letters: TwoPhaseCommitSink[Any] | None = None,
) -> StreamingQuery:
    """Write a streaming DataFrame into `sink` exactly as ``df.writeStream`` would.

    Returns Spark's own query. The sink's guarantee comes from Seamark's records in
    ``<checkpoint_location>/seamark``.

    `trigger` holds the keyword arguments of ``DataStreamWriter.trigger``, e.g. ``{"processingTime":
    "5 seconds"}`` or ``{"availableNow": True}``. An existing Spark checkpoint location is adopted:
    epochs go on after its last committed batch. After ``query.stop()``, or at the end of the
    program, decided epochs are committed and all others aborted. `on_bad_row` and `dead_letters`:
    as for `Job.sink`.
    """
    location = storage_uri(checkpoint_location, "write_stream: checkpoint_location")
    trigger = dict(trigger or {"processingTime": "0 seconds"})
    # The next check refuses anything but a DataFrame.
    spark = spark_session(query_name, dataframe if isinstance(dataframe, DataFrame) else None)
    checkpoint = CheckpointConfig(
        storage=location, interval=_interval_s(spark, trigger), timeout=timedelta.max
    )
    declared = _Query(query_name, checkpoint, output_mode)
    for made in declare_sinks(dataframe, sink, query_name, on_bad_row, dead_letters):
        declared.sinks[made.uid] = made
    redactor = job_redactor(spark, declared, location)
    run = StreamRun(
        JobPlan(declared),
        records_uri=f"{location}/seamark",
        spark_location=location,
        trigger=trigger,
        redactor=redactor,
    )
    with RedactedLog(redactor):  # later the run's own thread redacts
        return run.start()


def _interval_s(spark: SparkSession, trigger: Mapping[str, Any]) -> float:
    """Return the time between two epochs, as Spark reads its own kind of interval."""
    if "processingTime" not in trigger:
        return 0.0
    text = trigger["processingTime"]
    try:
        read = spark._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(str(text))
        return float(read.intervalMs()) / 1000
    except (PySparkException, Py4JJavaError):
        raise ConfigurationError(
            f"write_stream: trigger processingTime is {text!r}, which Spark cannot read as an "
            'interval; give one such as "500 milliseconds" or "1 minute 30 seconds"'
        ) from None

"""`FunctionSession`: where a sink's function, or Spark's batch writer, runs at a commit.

As in Spark's `foreachBatch` this is a clone of the session that declared the stream, and a thread
with the local properties of the caller of ``start()``. Each sink has a clone of its own, so that no
function meets another one's views. It is not the clone in which Spark plans the query: an epoch may
be sent before the query exists, and what a function sets must not change how rows are computed.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration
from seamark.contracts.spool import SpooledSink

_DESCRIPTION = "spark.job.description"
OF_THE_STREAM = ("sql.streaming.queryId", _DESCRIPTION)
"""Local properties of Spark's stream thread that the function's thread has too. Not its job group:
Spark cancels the group when the query stops, and a decided epoch must still be sent."""

_calling = threading.local()


def is_called_by(declared: JobDeclaration) -> bool:
    """Return whether a function of this very job has called: it must not wait for the job's end."""
    return getattr(_calling, "declared", None) is declared


def function_sessions(
    spark: SparkSession, started: Any, declared: JobDeclaration, stream: Mapping[str, str]
) -> dict[str, Any]:
    """Return the sessions, by uid, of the sinks that send their rows at the commit."""
    return {
        uid: FunctionSession(spark, started, declared, stream).entered
        for uid, one in declared.sinks.items()
        if isinstance(one.sink, SpooledSink)
    }


class FunctionSession:
    """One sink's session in one run of the job, made on the thread that runs the job: a clone of
    `started`, itself the Java clone of `spark` at the job's start. `stream` gets the properties
    `OF_THE_STREAM` when the query runs."""

    def __init__(
        self, spark: SparkSession, started: Any, declared: JobDeclaration, stream: Mapping[str, str]
    ) -> None:
        self._program, self._own = spark, started.cloneSession()
        self._declared, self._stream = declared, stream
        self._properties = spark.sparkContext._jsc.sc().getLocalProperties().clone()
        self._tags = spark.getTags()

    @contextlib.contextmanager
    def entered(self, epoch: int) -> Iterator[SparkSession]:
        """Inside the block this thread, of no other use, is the query's; see `SinkContext`."""
        _calling.declared = self._declared
        context = self._program.sparkContext
        java = context._jsc.sc()
        # The very object, no copy: what the function sets is there in the next epoch.
        java.setLocalProperties(self._properties)
        java.clearJobGroup()
        about = self._stream.get(_DESCRIPTION, "").rpartition("batch = ")[0]
        for name, value in {
            **self._stream, _DESCRIPTION: f"{about}batch = {epoch}", "streaming.sql.batchId": epoch,
        }.items():  # fmt: skip
            java.setLocalProperty(name, str(value))
        # Made for each call, as PySpark does: `rdd.toDF()` takes the session made last.
        own = SparkSession(context, self._own)
        own._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._own)
        for tag in self._tags:
            own.addTag(tag)
        try:
            yield own
        finally:
            self._tags = own.getTags()

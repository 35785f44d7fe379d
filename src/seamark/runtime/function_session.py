"""`FunctionSession`: where a sink's function, or Spark's batch writer, runs at a commit.

As in Spark's `foreachBatch` this is a clone of the session that declared the stream, and a thread
with the local properties of the caller of ``start()``. Each sink has a clone of its own, so that no
function meets another one's views. It is not the clone in which Spark plans the query: an epoch may
be sent before the query exists, and what a function sets must not change how rows are computed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration

_DESCRIPTION = "spark.job.description"
OF_THE_STREAM = ("sql.streaming.queryId", _DESCRIPTION)
"""Local properties of Spark's stream thread that the function's thread has too. Not its job group:
Spark cancels the group when the query stops, and a decided epoch must still be sent."""

_calling = threading.local()


def is_called_by(declared: JobDeclaration) -> bool:
    """Return whether a function of this very job has called: it must not wait for the job's end."""
    return getattr(_calling, "declared", None) is declared


def cloned(spark: SparkSession) -> SparkSession:
    """Return a session with the settings, views and functions of `spark`, and apart from it."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


class FunctionSession:
    """One sink's session in one run of the job, made on the thread that runs the job. `stream` gets
    the properties `OF_THE_STREAM` when the query runs."""

    def __init__(
        self, spark: SparkSession, declared: JobDeclaration, stream: Mapping[str, str]
    ) -> None:
        self._spark, self._declared, self._stream = cloned(spark), declared, stream
        self._context = spark.sparkContext._jsc.sc()
        self._properties = self._context.getLocalProperties().clone()
        self._tags = self._spark.getTags()

    @contextlib.contextmanager
    def entered(self, epoch: int) -> Iterator[SparkSession]:
        """Inside the block this thread, of no other use, is the query's; see `SinkContext`."""
        _calling.declared = self._declared
        # The very object, no copy: what the function sets is there in the next epoch.
        self._context.setLocalProperties(self._properties)
        self._context.clearJobGroup()
        about = self._stream.get(_DESCRIPTION, "").rpartition("batch = ")[0]
        for name, value in {
            **self._stream, _DESCRIPTION: f"{about}batch = {epoch}", "streaming.sql.batchId": epoch,
        }.items():  # fmt: skip
            self._context.setLocalProperty(name, str(value))
        for tag in self._tags:
            self._spark.addTag(tag)
        active = self._spark._jvm.org.apache.spark.sql.classic.SparkSession
        active.setActiveSession(self._spark._jsparkSession)
        try:
            yield self._spark
        finally:
            self._tags = self._spark.getTags()

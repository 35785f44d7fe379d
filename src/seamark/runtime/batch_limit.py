"""Lifts Spark's limit on the bytes of an Arrow batch while rows are small.

Under a limit, Spark (`ArrowWriter.sizeInBytes`) adds up the sizes of a batch's buffers again for
every row: a sixth of an executor's CPU in a plain copy. If the last epoch's rows were small enough
to keep a full batch far below the limit, the next epoch is written without it. A driver's first
epoch always has the limit. So if an epoch grows out of hand and kills a driver, it runs again under
the limit.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import SparkSession

from seamark.checkpoint.task_reports import TaskReport

_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NO_LIMIT = 2**31 - 1
_FAR_BELOW = 8


class BatchLimit:
    """The limit of one query. `after_epoch` gets the query's own session, as `foreachBatch`."""

    def __init__(self) -> None:
        self._given = ""
        self._small_bytes = 0.0
        self._lifted = False

    def after_epoch(self, session: SparkSession, tasks: Iterable[TaskReport]) -> None:
        """Set the next epoch's limit by the sizes of the rows this epoch's tasks wrote."""
        if not self._given:
            self._given = str(session.conf.get(_BYTES))
            # The most bytes a small row may have; without a limit on rows the limit on bytes stays.
            rows = max(0, int(str(session.conf.get(_ROWS))))
            self._small_bytes = _bytes(session, self._given) / _FAR_BELOW / rows if rows else 0
        sinks = [sink for task in tasks for sink in task.sinks.values()]
        rows = sum(sink.rows for sink in sinks)
        small = sum(sink.data_bytes for sink in sinks) <= rows * self._small_bytes
        if rows and small != self._lifted:
            session.conf.set(_BYTES, _NO_LIMIT if small else self._given)
            self._lifted = small


def _bytes(session: SparkSession, text: str) -> int:
    """Read ``64MB`` or ``67108864b`` as Spark does."""
    assert session._jvm is not None
    return int(session._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))

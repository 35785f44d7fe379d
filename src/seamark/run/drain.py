"""Drains a query: its sources give nothing more, its watermark goes to the end of time.

Spark has no call for it. Its `MicroBatchExecution` plans each batch under a lock, from a map of its
sources. Under this lock the drain wraps each source into a source that never moves on. Later, while
no planned batch awaits its commit, the drain raises the watermark. So a batch with the raised
watermark reads no row; any row it read would be late, and lost. ``spark/java/SeamarkDrain.java``
does the work, and `savepoints/take/running.py` sets the order of the steps.
"""

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming import StreamingQuery

from seamark.checkpoint.drained import raised
from seamark.model.errors import UserError
from seamark.spark.java.compiled import loaded_class


class Drain:
    """The drain of one running query. Raises UserError if this Spark cannot hold its sources."""

    def __init__(self, jvm: Any, query: StreamingQuery) -> None:
        self._stream = query._jsq.streamingQuery()
        self._name = query.name
        try:
            self._java = loaded_class(jvm, "SeamarkDrain").newInstance()
        except (Py4JError, TypeError) as error:
            raise UserError(
                f"job {query.name}: it cannot be drained: this version of Spark does not let its "
                f"sources be held ({error})"
            ) from None

    def hold_sources(self) -> None:
        """From now on Spark plans only epochs without rows. An epoch planned before still runs."""
        self._java.hold(self._stream)

    def release_sources(self) -> None:
        """Undo `hold_sources`."""
        self._java.release()

    def raise_watermark(self) -> bool:
        """Raise the watermark for the epochs to come. Returns False, with nothing done, if an epoch
        is under way. Before the call the sources must be held, and the epochs of their rows must
        have ended. Raises UserError if the query has ended, or if Spark would close nothing because
        no epoch has run since the start and none can be made."""
        said = str(self._java.raiseTo(raised(int(self._java.watermark()))))
        if said == "ended":
            raise UserError(f"job {self._name} has ended before it was drained")
        if said == "no plan":
            raise UserError(
                f"job {self._name}: it cannot be drained yet: it has run no epoch since its start, "
                "and Spark closes windows only after one. Drain it when it has read a row, or stop "
                "it without --drain"
            )
        return said == "raised"

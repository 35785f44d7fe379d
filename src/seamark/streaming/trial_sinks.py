"""Spark's sinks for trials in `write_stream`: memory, noop, and `foreach`. Their rows are those of
decided epochs alone, and come again after a crash: at-least-once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from seamark.api.checks import called_with
from seamark.contracts.idempotent import IdempotentSink
from seamark.contracts.sink import OUTPUT_MODES, CommittingWriter, SinkContext, WriterContext
from seamark.contracts.write_ahead import require_done
from seamark.model.guarantee import SinkWay
from seamark.spark.plan_functions import AsGiven
from seamark.spark.plans import frame_of, scala_class

_BATCH_ID = "streaming.sql.batchId"
_SOURCES = "org.apache.spark.sql.execution.streaming.sources"


class MemoryTable:
    """The rows in the driver's memory, as a temporary view: Spark's own memory sink, which takes
    each epoch once. `whole`: each epoch has all rows."""

    def __init__(self, frame: DataFrame, name: str, *, whole: bool) -> None:
        self._frame, self._name, self._whole = frame, name, whole
        self._rows = scala_class(frame._jdf, f"{_SOURCES}.MemorySink")()

    def make(self, _: SparkSession) -> None:
        """Make the view, empty."""
        java = self._frame._jdf
        types = scala_class(java, "org.apache.spark.sql.catalyst.types.DataTypeUtils")
        plan = scala_class(java, f"{_SOURCES}.MemoryPlan")(
            self._rows, types.toAttributes(java.schema())
        )
        frame_of(plan, self._frame.sparkSession).createOrReplaceTempView(self._name)

    def put(self, rows: DataFrame, epoch: int) -> None:
        """Add an epoch's rows."""
        self._rows.write(epoch, self._whole, rows._jdf.collect())


def for_each_row(f: Any) -> Callable[[DataFrame, int], None]:
    """Return the function of an epoch that calls `f` in tasks as Spark's `foreach` does. Raises
    what PySpark raises for an object that it cannot call, ConfigurationError for a function that
    takes no row."""
    DataStreamWriter._construct_foreach_function(f)
    if callable(f):
        called_with(f, 1, "foreach", "a row")
        checked: Any = _done(f, "foreach")
    else:
        takes = {"process": "a row", "open": "a partition and an epoch", "close": "an error"}
        checked = SimpleNamespace()
        for name, wanted in takes.items():
            if hasattr(f, name):
                called_with(getattr(f, name), 1 + (name == "open"), f"foreach: {name}", wanted)
                setattr(checked, name, _done(getattr(f, name), f"foreach: {name}"))
    of_partition = AsGiven(DataStreamWriter._construct_foreach_function(checked))

    def each_row(rows: DataFrame, epoch: int) -> None:
        context = rows.sparkSession.sparkContext
        context.setLocalProperty(_BATCH_ID, str(epoch))
        rows.rdd.mapPartitionsWithIndex(of_partition).collect()

    name = getattr(f, "__qualname__", type(f).__name__)
    each_row.__qualname__ = f"foreach({name})"
    return each_row


def _done(call: Callable[..., Any], what: str) -> Callable[..., Any]:
    def done(*given: Any) -> Any:
        returned = call(*given)
        require_done(returned, what)
        return returned

    return done


@dataclass(frozen=True)
class NoopSink(IdempotentSink):
    """Take every row, and keep none."""

    output_modes = OUTPUT_MODES
    way = SinkWay.NONE

    def describe(self) -> str:
        """See `TwoPhaseCommitSink`."""
        return "noop, which keeps no row"

    def preflight(self, context: SinkContext) -> None:
        """See `IdempotentSink`."""

    def create_writer(self, context: WriterContext) -> CommittingWriter[Any]:
        """See `IdempotentSink`."""
        return _NoopWriter()


class _NoopWriter(CommittingWriter[Any]):
    def write(self, batch: pa.RecordBatch) -> None:
        pass

    def prepare_commit(self) -> Sequence[Any]:
        return ()

    def abort(self) -> None:
        pass

"""Runs a job's query in Spark's Real-time Mode: rows flow while their epoch runs.

In this mode Spark's tasks read for the whole epoch, which is as long as the checkpoint interval.
Spark writes both its logs, the offsets and the decision, at the epoch's end, and has no
`foreachBatch`. So the query ends in a sink of Seamark's (``spark/java/SeamarkEpochSink.java``).
Spark calls it at the same two moments: before the tasks, and between their end and the logs
(docs/adr/0015-real-time.md). `query.py` runs the epochs; docs/real-time.md is for users.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from seamark.api.checks import one_of
from seamark.api.config import CheckpointMode
from seamark.checkpoint.task_reports import TaskReport
from seamark.model.errors import ConfigurationError
from seamark.run.job_plan import JobPlan
from seamark.run.jvm_writer import PYTHON_STEPS, JvmWriter
from seamark.run.pre_commit import ORDER, BatchFunction, reports_of
from seamark.spark.java.compiled import loaded_class
from seamark.spark.java_calls import items_of
from seamark.spark.plans import items, name_of, scala_class
from seamark.spark.spark_versions import has_real_time_mode
from seamark.spark.state_backend import PROVIDER, ROCKSDB_PROVIDER

REAL_TIME = "real-time"
EXECUTIONS = ("micro-batch", REAL_TIME)
LEAST_INTERVAL_S = 0.5
ON_THE_SESSION = {"spark.sql.streaming.realTimeMode.allowlistCheck": "false"}
"""Spark's list has neither Python nor this sink; `is_real_time` has checked the plan. Spark reads
it from the session in each epoch, not from the query's copy."""
_CONNECTOR = "org.apache.spark.sql.connector.read.streaming"
_FILLER = "_seamark_filler"
_SETTINGS = {
    # Spark 4.3 wants it for this mode, whether or not the query has state.
    PROVIDER: ROCKSDB_PROVIDER,
    # Spark hands rows to Python in batches, and waits for a batch to be full.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "64",
    "spark.sql.execution.python.udf.maxRecordsPerBatch": "1",
    "spark.sql.execution.python.udf.buffer.size": "64",
}
_ROW_BY_ROW = PYTHON_STEPS.union(
    (
        "CollectMetricsExec",
        "EventTimeWatermarkExec",
        "ExpandExec",
        "FilterExec",
        "GenerateExec",
        "InputAdapter",
        "ProjectExec",
        "WholeStageCodegenExec",
    )
)


def real_time_settings(interval_s: float) -> dict[str, str]:
    """Return Spark's settings for a query in this mode."""
    least_ms = str(round(interval_s * 1000))
    return {**_SETTINGS, "spark.sql.streaming.realTimeMode.minBatchDuration": least_ms}


def is_real_time(execution: str, plan: JobPlan) -> bool:
    """Return whether `execution` is this mode. Raises ConfigurationError for an unknown value, and,
    with every reason, if the job cannot run in this mode."""
    one_of(execution, EXECUTIONS, f"Job {plan.declared.name!r}: execution")
    if execution != REAL_TIME:
        return False
    if not has_real_time_mode():
        raise ConfigurationError(
            f'Job {plan.declared.name!r}: execution="real-time" needs Spark 4.2 or later, and this '
            f"is Spark {plan.spark.version}; upgrade, or leave execution out"
        )
    if reasons := [*_unfit_settings(plan), *_unfit_parts(plan)]:
        raise ConfigurationError(
            f'Job {plan.declared.name!r} cannot run with execution="real-time": '
            f"{'; '.join(reasons)}. Change that, or leave execution out"
        )
    return True


def _unfit_settings(plan: JobPlan) -> Iterator[str]:
    checkpoint = plan.declared.checkpoint
    if checkpoint.mode is CheckpointMode.AT_MOST_ONCE:
        yield (
            "mode is 'at-most-once', where an epoch is decided before its rows are read, and here "
            "an epoch's rows are known only at its end"
        )
    if checkpoint.interval_s < LEAST_INTERVAL_S:
        yield (
            f"interval is {checkpoint.interval!r}, the time for which an epoch's tasks read; give "
            f"at least {LEAST_INTERVAL_S:g}s"
        )
    if checkpoint.timeout_s <= checkpoint.interval_s:
        yield (
            f"timeout is {checkpoint.timeout!r} and interval {checkpoint.interval!r}: each epoch "
            "takes the whole interval, so give a timeout well above it"
        )
    if checkpoint.unaligned:
        yield "unaligned is True, and here no row waits for its epoch; leave it out"
    if checkpoint.min_pause_s:
        yield f"min_pause is {checkpoint.min_pause!r}, and rows would wait in it; leave it out"


def _unfit_parts(plan: JobPlan) -> Iterator[str]:
    declared = plan.declared
    for source in declared.sources.values():
        if source.bounded:
            yield f"source {source.uid!r} ends by itself, and an epoch reads for the whole interval"
    for sink in declared.sinks.values():
        if not sink.sink.real_time:
            yield (
                f"sink {sink.uid!r} ({sink.sink.describe()}) takes rows in batches; the Kafka sink "
                "takes them one by one"
            )
    if len(plan.uids.source_lines) > 1:
        yield (
            f"its sinks read {len(plan.uids.source_lines)} streams from sources, and Spark takes "
            "one: read several topics with one KafkaSource, or run a job for each stream"
        )
    query = plan.query
    for leaf in query.leaves:
        kind = str(leaf.sourceName())
        if kind.lower() != "kafka":
            yield f"a source of format {kind!r} is read, and only Kafka is possible"
    for part in query.operators:
        yield f"the plan has the operator {part.name}, which keeps state"
    for name, kind in dict.fromkeys(query.steps):
        if kind not in _ROW_BY_ROW:
            yield f"the plan has the step {name}; only steps that take row by row are possible"


class _OnStreamThread:
    """A function as Java's `BiFunction`; Java calls it on Spark's stream thread."""

    def __init__(self, function: Callable[[int, Any], Any]) -> None:
        self._function = function

    def apply(self, epoch: int, argument: Any) -> Any:
        return self._function(epoch, argument)

    class Java:
        implements = ("java.util.function.BiFunction",)


def require_cores(spark: SparkSession, tasks: int) -> None:
    """Raise ConfigurationError if the tasks of an epoch cannot run all at a time: a task that waits
    for another gets its turn when the epoch's time is over, and its partition is never read."""
    context = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    at_a_time = int(context.maxNumConcurrentTasks(profile))
    if tasks > at_a_time:
        raise ConfigurationError(
            f"the topics have {tasks} partitions, and Spark runs {at_a_time} tasks at a time: in "
            "real time each partition needs a core for itself. Give Spark more cores, or leave "
            "execution out"
        )


def end_offsets(spark: SparkSession) -> list[Any]:
    """Return the offset at which each source has ended in this epoch, as Spark is going to write it
    into its offset log. Called on the stream thread at the end of an epoch."""
    id_ = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    query = spark._jsparkSession.streams().get(id_).streamingQuery()
    ends = []
    for leaf in items(query.lastExecution().executedPlan().collectLeaves()):
        if name_of(leaf) == "RealTimeStreamScanExec":  # in Java, Spark 4.0 could not compile it
            told = items_of(leaf.endOffsetsAccumulator().value())
            told.sort(key=lambda end: int(end.index()))
            java = scala_class(leaf, f"{_CONNECTOR}.PartitionOffset")
            parts = spark.sparkContext._gateway.new_array(java, len(told))
            for place, end in enumerate(told):
                parts[place] = end.partitionOffset()
            ends.append(json.loads(leaf.stream().mergeOffsets(parts).json()))
    return ends


def followed(stream: DataFrame, task: BatchFunction) -> tuple[DataFrame, BatchFunction]:
    """Return the stream with a filler after each row, and the task's function without them.

    Before Spark sends a batch to Python, it asks for the row behind the batch (PythonArrowInput).
    Without a filler this is the next row from Kafka, and until then the last one would wait.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(_without_fillers(batches))

    fillers = F.explode(F.array(F.lit(False), F.lit(True))).alias(_FILLER)
    return stream.select("*", fillers), run


def _without_fillers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.filter(pc.invert(batch.column(_FILLER)))
        if rows.num_rows:
            yield rows.select(rows.schema.names[:-1])


def start_query(
    spark: SparkSession,
    writer: DataStreamWriter,
    begin: Callable[[int, int], str],
    end: Callable[[int, list[TaskReport]], None],
    jvm: JvmWriter | None,
) -> StreamingQuery:
    """Start the query of `writer`, whose stream ends in `pre_commit`, or whose rows `jvm` writes,
    in this mode.

    `begin` is called before an epoch's tasks start, with their number, and returns their local
    property `ORDER`. `end` is called when all have ended well, with the reports of the
    winning attempts, before Spark writes its logs. Both run on Spark's stream thread; an exception
    fails the query.
    """
    context = spark.sparkContext

    def ended(epoch: int, rows: Any) -> None:
        read = reports_of if jvm is None else jvm.reports_of
        end(epoch, read(epoch, items_of(rows)))

    ensure_callback_server_started(context._gateway)
    sink = loaded_class(spark._jvm, "SeamarkEpochSink").newInstance()
    writer.outputMode("update")  # the only one here; without state all output modes are the same
    calls = _OnStreamThread(begin), _OnStreamThread(ended)
    factory = None if jvm is None else jvm.factory
    started = sink.start(writer._jwrite, context._jsc.sc(), ORDER, *calls, factory)
    return StreamingQuery(started)

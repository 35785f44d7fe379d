"""``df.writeStream.format("seamark")``: Seamark's sinks as a Python data source of Spark.

For programs without a JVM of their own: Spark Connect, declarative pipelines. Spark finds the class
by the module `pyspark_seamark`. It plans each batch in a Python worker at its driver, writes it in
tasks (`BatchWriter`), and commits it in another worker at the driver (`BatchCommit`). Spark keeps
these workers as long as it likes, so what they share lies in the location, in the log of
`checkpoint/batch_log.py`, by the steps of `protocol/batches.py`. Imports no py4j.
"""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from seamark.checkpoint.batch_log import UID
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.task_reports import TaskReport, sink_epochs
from seamark.contracts.sink import WriterContext
from seamark.datasource.columns import Projection
from seamark.datasource.location import Location, open_location
from seamark.model import failpoints
from seamark.model.errors import ConfigurationError, PreCommitError, SeamarkError
from seamark.model.redaction import Redactor, secrets_in
from seamark.protocol.batches import Decided, Try
from seamark.run.layout import Layout
from seamark.run.task_attempt import EpochTasks, TaskAttempt

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowWriter
except ImportError:  # Spark 4.0 looks for the batch writer's class before it gives Arrow batches
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class ArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore
        """A stream's writer of Arrow batches."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Let Spark show an error that says all without a traceback, by a switch of its own. The worker
    ends with the error, so nobody else's is hidden."""
    try:
        yield
    except SeamarkError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def place_of(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Location:
    """Open the query's location for rows of `schema`. Raises ConfigurationError for a mistake in
    the options, and for `overwrite`, which is output mode complete."""
    if overwrite:
        raise ConfigurationError(
            'format("seamark"): outputMode is "complete", in which each batch has all rows '
            'again; its sinks take "append" alone. Use sm.write_stream, where there is a JVM'
        )
    place = open_location(options)
    place.take(schema)
    return place


def plan_batch(place: Location) -> "BatchWriter":
    """Begin a try of the batch that Spark plans, and return its tasks' writer. Raises
    ConfigurationError for columns that the sink does not take."""
    projection = Projection.of(place.sink, place.schema, selected=place.selected)
    this = place.begin()  # before the job id: a deleted location gets a new one
    return BatchWriter(place.options, place.job_id, place.spool_uri, projection, this)


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc]
    """One task's message to the commit: the location's job id, the try it belongs to, the query,
    and its report; None if the batch is decided already. `opened_at`: when it began to write."""

    job_id: str
    attempt: int
    generation: int
    query: str
    report: TaskReport | None
    opened_at: float = math.inf


@dataclass(frozen=True)
class BatchWriter(ArrowWriter):  # type: ignore[misc]
    """Writes a batch's rows in its tasks. Picklable."""

    options: Mapping[str, str]
    job_id: str
    spool_uri: str
    projection: Projection
    this: Try

    @in_one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows into one transaction and flush it; called once per attempt."""
        task = TaskContext.get()
        assert task is not None
        batch = int(str(task.getLocalProperty("streaming.sql.batchId")))
        query = str(task.getLocalProperty("sql.streaming.queryId"))
        started_at, opened_at = time.time(), math.inf
        report = None

        def projected() -> Iterator[pa.RecordBatch]:
            nonlocal opened_at
            for rows in iterator:
                opened_at = min(opened_at, time.time())  # a sort before it may take its time
                yield self.projection(rows)

        place = open_location(self.options)
        if self.this.writes(batch, query, adopts=place.adopts):
            context = self._context(place, batch, task)
            attempt = TaskAttempt(self._tasks(place), lambda uid: context)
            try:
                attempt.write_all(projected(), (), None)
                attempt.prepare_commit()
            except BaseException as error:
                attempt.abort()
                if attempt.busy and isinstance(error, Exception):
                    hide = Redactor(secrets_in({UID: place.sink}))
                    raise PreCommitError(hide(attempt.failure(error))) from None
                raise
            report = TaskReport(
                task.partitionId(), task.attemptNumber(), started_at, time.time(), attempt.parts,
            )  # fmt: skip
        else:
            for _ in iterator:  # the operators before it must see every row
                pass
        failpoints.reached("batch-flushed")
        this = self.this
        return Written(self.job_id, this.number, this.generation, query, report, opened_at)

    def _tasks(self, place: Location) -> EpochTasks:
        names = tuple(part.name for part in self.projection.parts)
        return EpochTasks(
            layout=Layout((UID,), names),
            sinks={UID: place.sink},
            dead_letters={},
            job_id=self.job_id,
            generation=self.this.generation,
            hadoop=place.hadoop,
            spool_uris={UID: self.spool_uri},
            channel_state_uri="",
            processes={},
        )

    def _context(self, place: Location, batch: int, task: TaskContext) -> WriterContext:
        return WriterContext(
            job_id=self.job_id,
            sink_uid=UID,
            generation=self.this.generation,
            epoch=batch,
            partition_id=task.partitionId(),
            attempt=task.taskAttemptId(),
            settled_epoch=self.this.settled,
            hadoop=place.hadoop,
            spool_uri=self.spool_uri,
        )


class BatchCommit(ArrowWriter):  # type: ignore[misc]
    """Commits a batch, in a worker at Spark's driver that Spark keeps from batch to batch."""

    def __init__(self, place: Location) -> None:
        self._place = place

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Never called: tasks have a `BatchWriter`."""
        raise NotImplementedError

    @in_one_line()
    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:
        """Decide the batch and make its rows visible; returns when this is proved."""
        told = [message for message in messages if message is not None]
        if len(told) < len(messages) or len({(m.attempt, m.query) for m in told}) != 1:
            raise SeamarkError(
                f"batch {batchId}: Spark gives the messages of {len(told)} tasks of {len(messages)}"
                ", not all of one try of the batch; nothing was decided"
            )
        parts = sink_epochs([m.report for m in told if m.report is not None])
        part = parts.get(UID, SinkEpoch(0, ()))
        first = told[0]
        mine = Decided(batchId, first.query, first.attempt, first.generation, part)
        self._place.commit(mine, first.job_id, min(m.opened_at for m in told))

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:
        """Do nothing: the batch may be decided. The next try aborts what this one has left."""

"""Takes a savepoint from a running job: a checkpoint now, exported while the stream goes on.

The export reads the epoch's files from the storage, so that epoch is pinned meanwhile: the stream
is held only when it would get so far ahead that Spark deletes them (`CheckpointConfig`
num_retained), or from the start if the job is to end with the savepoint. `Job.savepoint` calls it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future

from pyspark.sql import SparkSession

from tidemark.checkpoint.savepoint_statistics import SavepointEnd
from tidemark.model.checkpoint_statistics import CheckpointStatus, TaskCheckpointStatistics
from tidemark.runtime.failures import reason_of
from tidemark.runtime.hadoop_files import open_files
from tidemark.runtime.query import StreamRun
from tidemark.savepoints.exporting import export_savepoint
from tidemark.savepoints.record import Savepoint, SavepointType, Sink, write_taking

log = logging.getLogger(__name__)


def take(
    spark: SparkSession,
    run: StreamRun,
    directory: str,
    type_: SavepointType,
    *,
    then: Callable[[], None] | None = None,
) -> Future[str]:
    """Take a savepoint of a run into a new directory below `directory`, a URI; return its path,
    once it is whole. With `then`, no epoch runs after the savepoint's, and `then` is called when it
    is whole: `Supervisor.stop`, for a job that is to end with it.

    The future fails with what the epoch or the export fails with; the job goes on then, and what
    was written is deleted, as far as it can be. Raises UserError as `trigger_checkpoint` does.
    """
    return _Taking(spark, run, directory, type_, then).begin()


class _Taking:
    """One savepoint on its way. `begin` returns at once; the rest happens in a thread."""

    def __init__(
        self,
        spark: SparkSession,
        run: StreamRun,
        directory: str,
        type_: SavepointType,
        then: Callable[[], None] | None,
    ) -> None:
        self._spark = spark
        self._run = run
        self._directory = directory
        self._type = type_
        self._then = then
        self._ahead = 0 if then is not None else run.epochs_ahead
        self._asked_at = time.time()
        self._asked_s = time.monotonic()
        self._answer: Future[str] = Future()

    def begin(self) -> Future[str]:
        asked = self._run.trigger_checkpoint(self._ahead)
        self._answer.set_running_or_notify_cancel()
        threading.Thread(
            target=self._take, args=(asked,), name="tidemark-savepoint", daemon=True
        ).start()
        return self._answer

    def _take(self, asked: Future[int]) -> None:
        try:
            epoch = asked.result()
        except BaseException as error:
            self._answer.set_exception(error)
            return
        coordinator, last = self._run.coordinator, epoch + self._ahead
        statistics = coordinator.statistics
        recorded = statistics.savepoint_begun(epoch, self._type.value.upper(), self._asked_at)
        try:
            savepoint = self._export(epoch)
        except BaseException as error:
            end = SavepointEnd(time.monotonic() - self._asked_s, failure=reason_of(error))
            statistics.savepoint_ended(recorded, end)
            log.warning("the savepoint of epoch %d could not be taken: %s", epoch, error)
            coordinator.unpin(epoch, last)
            self._answer.set_exception(error)
            return
        log.info("savepoint of epoch %d: %s", epoch, savepoint.uri)
        statistics.savepoint_ended(recorded, _end(savepoint, time.monotonic() - self._asked_s))
        if self._then is None:
            coordinator.unpin(epoch, last)
        else:
            self._then()  # pinned to the end: no other epoch may slip through
        self._answer.set_result(savepoint.uri)

    def _export(self, epoch: int) -> Savepoint:
        run, identity = self._run, self._run.coordinator.identity
        assert identity is not None
        name = f"savepoint-{identity.job_id[:6]}-{uuid.uuid4().hex[:12]}"  # as Flink names them
        path = f"{self._directory}/{name}"
        try:
            write_taking(
                open_files(self._spark, path),
                job_id=identity.job_id,
                job_name=identity.name,
                job_directory=run.uri,
                epoch=epoch,
            )
            return export_savepoint(
                self._spark,
                run.spark_location,
                epoch,
                path,
                job_id=identity.job_id,
                job_name=identity.name,
                uids=run.uids,
                type_=self._type,
                sinks=[Sink(uid, type(sink).__name__) for uid, sink in run.sinks.items()],
            )
        except BaseException:
            with contextlib.suppress(Exception):
                open_files(self._spark, self._directory, make=False).delete(name)
            raise


def _end(savepoint: Savepoint, took_s: float) -> SavepointEnd:
    """Return what the checkpoint history tells of a savepoint that is whole."""
    return SavepointEnd(
        took_s,
        savepoint.uri,
        sum(size for size, _ in savepoint.files.values()),
        [
            TaskCheckpointStatistics(
                uid=operator.uid,
                kind="operator",
                name=operator.name,
                status=CheckpointStatus.COMPLETED,
                checkpointed_size=savepoint.bytes_of(operator),
                state_size=savepoint.bytes_of(operator),
                rows=operator.rows,
                num_subtasks=operator.partitions,
                num_acknowledged_subtasks=operator.partitions,
            )
            for operator in savepoint.operators
        ],
    )

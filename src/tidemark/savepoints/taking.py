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
from tidemark.savepoints.canonical import export_canonical
from tidemark.savepoints.record import Savepoint

log = logging.getLogger(__name__)


def take(
    spark: SparkSession, run: StreamRun, directory: str, *, then: Callable[[], None] | None = None
) -> Future[str]:
    """Take a canonical savepoint of a run into a new directory below `directory`, a URI; return its
    path, once it is whole. With `then`, no epoch runs after the savepoint's, and `then` is called
    when it is whole: `Supervisor.stop`, for a job that is to end with it.

    The future fails with what the epoch or the export fails with; the job goes on then, and what
    was written is deleted, as far as it can be. Raises UserError as `trigger_checkpoint` does.
    """
    ahead = 0 if then is not None else run.epochs_ahead
    begun = time.time(), time.monotonic()
    asked = run.trigger_checkpoint(ahead)
    answer: Future[str] = Future()
    answer.set_running_or_notify_cancel()
    threading.Thread(
        target=_take,
        args=(spark, run, directory, asked, begun, ahead, then, answer),
        name="tidemark-savepoint",
        daemon=True,
    ).start()
    return answer


def _take(
    spark: SparkSession,
    run: StreamRun,
    directory: str,
    asked: Future[int],
    begun: tuple[float, float],
    ahead: int,
    then: Callable[[], None] | None,
    answer: Future[str],
) -> None:
    try:
        epoch = asked.result()
    except BaseException as error:
        answer.set_exception(error)
        return
    asked_at, asked_s = begun
    statistics = run.coordinator.statistics
    recorded = statistics.savepoint_begun(epoch, "CANONICAL", asked_at)
    try:
        savepoint = _export(spark, run, epoch, directory)
    except BaseException as error:
        took_s = time.monotonic() - asked_s
        statistics.savepoint_ended(recorded, SavepointEnd(took_s, failure=reason_of(error)))
        log.warning("the savepoint of epoch %d could not be taken: %s", epoch, error)
        run.coordinator.unpin(epoch, epoch + ahead)
        answer.set_exception(error)
        return
    log.info("savepoint of epoch %d: %s", epoch, savepoint.uri)
    statistics.savepoint_ended(recorded, _end(savepoint, time.monotonic() - asked_s))
    if then is None:
        run.coordinator.unpin(epoch, epoch + ahead)
    else:
        then()  # pinned to the end: no other epoch may slip through
    answer.set_result(savepoint.uri)


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
                checkpointed_size=operator.bytes,
                state_size=operator.bytes,
                rows=operator.rows,
                num_subtasks=operator.partitions,
                num_acknowledged_subtasks=operator.partitions,
            )
            for operator in savepoint.operators
        ],
    )


def _export(spark: SparkSession, run: StreamRun, epoch: int, directory: str) -> Savepoint:
    identity = run.coordinator.identity
    assert identity is not None
    name = f"savepoint-{identity.job_id[:6]}-{uuid.uuid4().hex[:12]}"  # as Flink names them
    path = f"{directory}/{name}"
    try:
        return export_canonical(
            spark,
            run.spark_location,
            epoch,
            path,
            job_id=identity.job_id,
            job_name=identity.name,
            uids=run.uids,
        )
    except BaseException:
        with contextlib.suppress(Exception):
            open_files(spark, directory, make=False).delete(name)
        raise

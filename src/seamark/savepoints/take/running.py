"""Takes a savepoint from a running job: a checkpoint now, exported while the stream goes on.

The export reads the epoch's files from the storage, so that epoch is pinned meanwhile: the stream
is held only when it would get so far ahead that Spark deletes them (`CheckpointConfig`
num_retained), or from the start if the job is to end with the savepoint. It begins when the epoch
is decided; what is not committed by its end goes along as committables. `Job.savepoint` calls it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from pyspark.sql import SparkSession

from seamark.checkpoint.savepoint_statistics import SavepointEnd
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.checkpoint_statistics import CheckpointStatus, TaskCheckpointStatistics
from seamark.model.errors import SavepointError, UserError
from seamark.runtime.drain import Drain
from seamark.runtime.failures import reason_of
from seamark.runtime.hadoop_files import open_files
from seamark.runtime.query import StreamRun
from seamark.savepoints.record import SavepointRecord, SavepointType, write_taking
from seamark.savepoints.take.export import Beside, SavedJob, export_savepoint
from seamark.savepoints.take.uncommitted import save_rows

POLL_S = 0.2
PROGRESS_S = 1.0
CLOSING_EPOCHS = 3

log = logging.getLogger(__name__)


def take(
    spark: SparkSession,
    run: StreamRun,
    directory: str,
    type_: SavepointType,
    *,
    then: Callable[[], None] | None = None,
    drain: bool = False,
) -> SavepointFuture:
    """Take a savepoint of a run into a new directory below `directory`, a URI; return its path,
    once it is whole. With `then`, no epoch runs after the savepoint's, and `then` is called when it
    is whole: `Supervisor.stop`, for a job that is to end with it. With `drain` too, that job first
    reads nothing more, and closes its windows.

    The future fails with what the epoch or the export fails with; the job goes on then, unless its
    windows are closed already, and what was written is deleted, as far as it can be. Raises
    UserError as `trigger_checkpoint` does.
    """
    return _Taking(spark, run, directory, type_, then).begin(run.drain() if drain else None)


@dataclass(frozen=True)
class Progress:
    """How many bytes of a savepoint's state are written, and how many there will be: `total` is
    exact of a native one; of a canonical one it is what the same state has in the job's files."""

    bytes: int
    total: int


class SavepointFuture(Future[str]):
    """The path of a savepoint that is being taken."""

    def __init__(self) -> None:
        super().__init__()
        self._written: Callable[[], int] | None = None
        self._expected = 0
        self._seen = 0
        self._looked_s = -math.inf
        self._lock = threading.Lock()

    def writing(self, expected: int, written: Callable[[], int]) -> None:
        """Called when its state begins to be written."""
        self._expected, self._written = expected, written

    def progress(self) -> Progress | None:
        """Return how far it is; None before its state is written. Looks at the storage, once in
        PROGRESS_S at most."""
        if self._written is None:
            return None
        with self._lock:
            if time.monotonic() - self._looked_s > PROGRESS_S and not self.done():
                with contextlib.suppress(OSError):
                    self._seen = self._written()
                self._looked_s = time.monotonic()
        return Progress(min(self._seen, self._expected), self._expected)


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
        self._answer = SavepointFuture()
        self._drained = False

    def begin(self, drain: Drain | None) -> SavepointFuture:
        asked = None if drain else self._run.trigger_checkpoint(self._ahead)
        self._answer.set_running_or_notify_cancel()
        threading.Thread(
            target=self._take, args=(asked, drain), name="seamark-savepoint", daemon=True
        ).start()
        return self._answer

    def _take(self, asked: Future[int] | None, drain: Drain | None) -> None:
        try:
            if drain is not None:
                self._drain(drain)
            asked = asked or self._run.trigger_checkpoint(self._ahead)
            epoch = asked.result()
        except BaseException as error:
            self._failed(error)
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
            if not self._drained:
                coordinator.epochs.unpin(epoch, last)
            self._failed(error)
            return
        log.info("savepoint of epoch %d: %s", epoch, savepoint.uri)
        statistics.savepoint_ended(recorded, _end(savepoint, time.monotonic() - self._asked_s))
        if self._then is None:
            coordinator.epochs.unpin(epoch, last)
        else:
            self._then()  # pinned to the end: no other epoch may slip through
        self._answer.set_result(savepoint.uri)

    def _drain(self, drain: Drain) -> None:
        """Let the job process what it has read and nothing more, then close its windows."""
        drain.hold_sources()
        try:
            # Every epoch that has rows was begun before the one of this answer, or is it.
            self._run.trigger_checkpoint().result()
            while not drain.raise_watermark():
                self._run.coordinator.epochs.check()
        except BaseException:
            drain.release_sources()
            raise
        self._drained = True
        epoch = self._run.trigger_checkpoint().result()
        # Until Spark finds nothing more to close: one epoch does it. Where an operator goes by the
        # clock Spark runs one at each trigger, for ever.
        for _ in range(CLOSING_EPOCHS):
            before, epoch = epoch, self._run.trigger_checkpoint().result()
            if epoch == before:
                break

    def _failed(self, error: BaseException) -> None:
        """Tell it. A job that is drained cannot go on: all that comes now would be late."""
        if self._drained and self._then is not None and self._run.coordinator.failure is None:
            with contextlib.suppress(UserError):  # it has ended by itself
                self._then()
            last = f"{self._run.uri}/epochs/{self._run.coordinator.last_committed}"
            found = SavepointError(
                f"{reason_of(error)}. The job is drained all the same, and ends; what it has read "
                f"is committed. A new job goes on from {last}"
            )
            found.__cause__ = error
            error = found
        self._answer.set_exception(error)

    def _export(self, epoch: int) -> SavepointRecord:
        run, identity = self._run, self._run.coordinator.identity
        assert identity is not None
        name = f"savepoint-{identity.job_id[:6]}-{uuid.uuid4().hex[:12]}"  # as Flink names them
        path = f"{self._directory}/{name}"
        files = open_files(self._spark, path)
        try:
            write_taking(
                files,
                job_id=identity.job_id,
                job_name=identity.name,
                job_directory=run.uri,
                epoch=epoch,
            )
            sinks = {uid: type(sink).__name__ for uid, sink in run.sinks.items()}
            return export_savepoint(
                self._spark,
                run.spark_location,
                epoch,
                path,
                SavedJob(identity.job_id, identity.name, run.uids, sinks, run.uri),
                self._type,
                Beside(
                    str(run.query.runId) if run.query else "",
                    self._then is None,
                    lambda: save_rows(self._spark, run, epoch, files),
                    lambda expected: self._answer.writing(expected, lambda: _written(files)),
                ),
            )
        except BaseException:
            with contextlib.suppress(Exception):
                open_files(self._spark, self._directory, make=False).delete(name)
            raise


def _written(files: CheckpointFiles) -> int:
    """Return the bytes below ``state/``, however deep: tasks write in directories of their own."""
    patterns = ["state/*/*" + "/*" * more for more in range(5)]
    return sum(files.sizes(*patterns).values())


def _end(savepoint: SavepointRecord, took_s: float) -> SavepointEnd:
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

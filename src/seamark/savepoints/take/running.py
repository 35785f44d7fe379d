"""Takes a savepoint from a running job: a checkpoint now, exported while the stream goes on.

The export reads the epoch's files from the storage, so this epoch is pinned meanwhile. The stream
is held only when it would get so far ahead that Spark deletes the files (`CheckpointConfig`
num_retained), or from the start if the job is to end with the savepoint. The export begins when the
epoch is decided; transactions not committed by its end go along as committables. `Job.savepoint`
calls `take`.
"""

import contextlib
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from seamark.checkpoint.statistics import SavepointEnd
from seamark.files import Directory
from seamark.model.checkpoint_statistics import CheckpointStatus, TaskCheckpointStatistics
from seamark.model.errors import SavepointError
from seamark.model.ignored import ignored
from seamark.run.drain import Drain
from seamark.run.failures import reason_of
from seamark.run.query import StreamRun
from seamark.savepoints.record import SavepointRecord, SavepointType, write_taking
from seamark.savepoints.take.export import Beside, SavedJob, export_savepoint
from seamark.savepoints.take.uncommitted import save_rows
from seamark.spark.hadoop_files import open_files

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
    then: Callable[[], bool] | None = None,
    drain: bool = False,
) -> "SavepointFuture":
    """Take a savepoint of a run into a new directory below `directory`, a URI; return a future of
    its path, done once it is whole. With `then`, no epoch of the run follows the savepoint's, and
    `then` is called when it is whole: `Supervisor.end_with`, for a job that is to end with it. With
    `drain` too, the job first reads nothing more, and closes its windows.

    If `then` returns False, the job has gone on in a later run: the future fails, and the savepoint
    stays.

    The future fails with the error of the epoch or of the export. Files already written are then
    deleted, if possible, and the job goes on, unless its windows are closed already. Raises
    UserError as `trigger_checkpoint` does.
    """
    return _Taking(spark, run, directory, type_, then).begin(run.drain() if drain else None)


@dataclass(frozen=True)
class Progress:
    """The bytes of a savepoint's state written so far, and in all. `total` is exact for a native
    one; for a canonical one it is the size of the same state in the job's files."""

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
        """Note the expected bytes and the function for written ones, before writing begins."""
        self._expected, self._written = expected, written

    def progress(self) -> Progress | None:
        """Return its progress; None before its state is written. Looks once in PROGRESS_S."""
        if self._written is None:
            return None
        with self._lock:
            if time.monotonic() - self._looked_s > PROGRESS_S and not self.done():
                with contextlib.suppress(OSError):
                    self._seen = self._written()
                self._looked_s = time.monotonic()
        return Progress(min(self._seen, self._expected), self._expected)


@dataclass(eq=False)
class _Taking:
    """One savepoint on its way. `begin` returns at once; the rest happens in a thread."""

    spark: SparkSession
    run: StreamRun
    directory: str
    type_: SavepointType
    then: Callable[[], bool] | None
    _drained: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._ahead = 0 if self.then is not None else self.run.epochs_ahead
        self._asked_at = time.time()
        self._asked_s = time.monotonic()
        self._answer = SavepointFuture()
        self._aligned = contextlib.ExitStack()

    def begin(self, drain: Drain | None) -> SavepointFuture:
        # The savepoint's epoch writes all rows, those of earlier epochs too. It carries rows that
        # wait with their key, but a drain would fire timers before them.
        self._aligned.enter_context(self.run.aligned(keyed=drain is not None))
        try:
            return self._begin(drain)
        except BaseException:
            self._aligned.close()
            raise

    def _begin(self, drain: Drain | None) -> SavepointFuture:
        asked = None if drain else self.run.trigger_checkpoint(self._ahead)
        self._answer.set_running_or_notify_cancel()
        threading.Thread(
            target=self._take, args=(asked, drain), name="seamark-savepoint", daemon=True
        ).start()
        return self._answer

    def _take(self, asked: Future[int] | None, drain: Drain | None) -> None:
        try:
            if drain is not None:
                self._drain(drain)
            asked = asked or self.run.trigger_checkpoint(self._ahead)
            epoch = asked.result()
        except BaseException as error:
            self._failed(error)
            return
        finally:
            self._aligned.close()
        coordinator, last = self.run.coordinator, epoch + self._ahead
        statistics = coordinator.statistics
        recorded = None
        try:  # from here on the stream is pinned
            recorded = statistics.savepoint_begun(epoch, self.type_.value.upper(), self._asked_at)
            savepoint = self._export(epoch)
        except BaseException as error:
            end = SavepointEnd(time.monotonic() - self._asked_s, failure=reason_of(error))
            if recorded is not None:
                statistics.savepoint_ended(recorded, end)
            log.warning("the savepoint of epoch %d could not be taken: %s", epoch, error)
            if not self._drained:
                coordinator.epochs.unpin(epoch, last)
            self._failed(error)
            return
        log.info("savepoint of epoch %d: %s", epoch, savepoint.uri)
        statistics.savepoint_ended(recorded, _end(savepoint, time.monotonic() - self._asked_s))
        if self.then is None:
            coordinator.epochs.unpin(epoch, last)
        elif not self.then():  # stays pinned to the end: no other epoch may slip through
            self._failed(
                SavepointError(
                    f"job {savepoint.job_name}: its savepoint of epoch {epoch} is whole "
                    f"({savepoint.uri}), but a failure has restarted the job meanwhile. It goes on "
                    "and writes later epochs, whose rows a restore of that savepoint would write "
                    "again: ask once more for the end with a savepoint"
                )
            )
            return
        self._answer.set_result(savepoint.uri)

    def _drain(self, drain: Drain) -> None:
        """Let the job process all rows that it has read, read no more, and close its windows."""
        # Rows that wait, those of an epoch under way too, come first: held sources make no epoch
        # for them.
        self.run.trigger_checkpoint().result()
        drain.hold_sources()
        try:
            # Every epoch with rows was begun before the epoch of this answer, or is that epoch.
            self.run.trigger_checkpoint().result()
            while not drain.raise_watermark():
                self.run.coordinator.epochs.check()
        except BaseException:
            drain.release_sources()
            raise
        self._drained = True
        epoch = self.run.trigger_checkpoint().result()
        # Until Spark finds nothing more to close: one epoch is enough. With an operator of
        # processing time Spark runs one at each trigger, for ever.
        for _ in range(CLOSING_EPOCHS):
            before, epoch = epoch, self.run.trigger_checkpoint().result()
            if epoch == before:
                break

    def _failed(self, error: BaseException) -> None:
        """Fail the future with `error`. A drained job cannot go on, since all later rows would be
        late: end it, if it was to end with the savepoint."""
        if self._drained and self.then is not None and self.run.coordinator.failure is None:
            self.then()
            last = f"{self.run.uri}/epochs/{self.run.coordinator.last_committed}"
            failure = SavepointError(
                f"{reason_of(error)}. The job is drained all the same, and ends; what it has read "
                f"is committed. A new job goes on from {last}"
            )
            failure.__cause__ = error
            error = failure
        self._answer.set_exception(error)

    def _export(self, epoch: int) -> SavepointRecord:
        run, identity = self.run, self.run.coordinator.identity
        assert identity is not None
        name = f"savepoint-{identity.job_id[:6]}-{uuid.uuid4().hex[:12]}"  # as Flink names them
        path = f"{self.directory}/{name}"
        files = open_files(self.spark, path)
        try:
            write_taking(files, identity.job_id, identity.name, run.uri, epoch)
            sinks = {uid: type(sink).__name__ for uid, sink in run.sinks.items()}
            return export_savepoint(
                self.spark,
                run.spark_location,
                epoch,
                path,
                SavedJob(identity.job_id, identity.name, run.uids, sinks, run.uri, run.known),
                self.type_,
                Beside(
                    str(run.query.runId) if run.query else "",
                    self.then is None,
                    lambda: save_rows(self.spark, run, epoch, files),
                    lambda expected: self._answer.writing(expected, lambda: _written(files)),
                ),
            )
        except BaseException as error:
            with ignored(f"the deletion of {path}"):
                open_files(self.spark, self.directory, make=False).delete(name)
            if isinstance(error, OSError):
                raise SavepointError(
                    f"savepoint {path} cannot be written: {error}; see that the directory has room "
                    "and is writable, or give another one"
                ) from error
            raise


def _written(files: Directory) -> int:
    """Return the bytes below ``state/``, at any depth: tasks write in directories of their own."""
    return sum(size for path, size in files.tree("state").items() if "/." not in path)


def _end(savepoint: SavepointRecord, took_s: float) -> SavepointEnd:
    """Return the checkpoint history's entry for a whole savepoint."""
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

"""Every error that Seamark raises, as one tree.

A message names the object, the value found and the remedy. `UserError` and what is below it are
mistakes of the caller's: the command line shows them as one paragraph, without a traceback.
"""

from __future__ import annotations

from seamark.model.findings import Finding


class SeamarkError(Exception):
    """The root: `except SeamarkError` catches all that Seamark raises on purpose."""


class UserError(SeamarkError):
    """Something that the caller can mend: a value, a file, a missing topic."""


class ConfigurationError(UserError, ValueError):
    """A value refused when the object is built; nothing has been started or touched."""


class PreflightError(UserError):
    """A real server, asked at start, does not meet what the job needs; nothing was written.

    `finding` is what was found, where it has a code of its own; else None.
    """

    def __init__(self, what: str | Finding) -> None:
        super().__init__(str(what))
        self.finding = what if isinstance(what, Finding) else None


class MissingDependencyError(UserError):
    """A driver, jar or program that the job needs is not installed; names the command to get it."""


class DriverUnreachableError(SeamarkError):
    """No driver of the job answers: it has ended, was killed, or runs on another machine."""


class OperationFailedError(SeamarkError):
    """What a job was asked for from outside failed there, or was not done in time; says why."""


class StoppedError(SeamarkError):
    """The job was told to stop; nothing is lost, and the next start goes on."""


class SparkDiedError(SeamarkError):
    """The Spark JVM of this driver has ended; what was decided is committed, the rest aborted."""


class FencedError(SeamarkError):
    """A newer driver of the same job has taken over; this one has written nothing more."""


class CheckpointError(SeamarkError):
    """The checkpoint directory contradicts itself; going on could lose or double rows."""


class CorruptRecordError(CheckpointError):
    """A stored record is torn, altered or of an unknown version; names the file."""


class DamagedCheckpointError(CheckpointError):
    """Files that the job needs to go on, or a restore needs to read, are damaged or missing; found
    before anything is written.

    `problems` has a line for each file, beginning with its path; `restore_path` is the newest
    complete checkpoint, to be given to ``job.run(restore=…)``, or None.
    """

    def __init__(
        self, message: str, problems: tuple[str, ...] = (), restore_path: str | None = None
    ) -> None:
        super().__init__(message)
        self.problems = problems
        self.restore_path = restore_path


class RestoreError(UserError):
    """The checkpoint to restore, or the directory to restore it into, cannot be used so; nothing
    of either was changed."""


class SavepointError(UserError):
    """A directory is no whole savepoint, or a savepoint cannot be taken or read so; no job's
    checkpoint was changed."""


class DrainedError(UserError):
    """The job was drained: its windows were closed early, and rows that came now would be late. All
    that it had read is committed. Names what a new job can go on from."""


class DecisionMissingError(DamagedCheckpointError):
    """An epoch was committed to its sinks, but Spark's commit log no longer holds its entry."""


class DecisionVoidError(FencedError):
    """A fenced driver decided an epoch whose transactions are aborted; a restart runs it again."""


class CommitFailedError(SeamarkError):
    """A decided epoch could not be committed within the deadline; it stays decided and the next
    start of the job commits it again."""


class LostTransactionError(CommitFailedError):
    """A decided epoch's transaction is gone at the sink: its rows are not visible and cannot become
    so. Names the epoch, the sink and the transaction; never downgraded to a log line."""


class AbortFailedError(SeamarkError):
    """A transaction could not be proved aborted, so nothing may be written for its epoch."""


class WriteRefusedError(SeamarkError):
    """The sink's system refused rows during pre-commit; the epoch fails and nothing is visible."""


class SendRefusedError(CommitFailedError):
    """A write-ahead sink's target refuses a decided epoch's rows, for a reason that does not pass:
    raised by `send`. The rows stay in the checkpoint; the next start of the job sends them again.
    """


class PreCommitError(SeamarkError):
    """A sink's writer failed in a task, while it wrote or flushed: the epoch fails, and nothing of
    it is visible. Names the sink and what its writer raised."""


class RecordNotStoredError(SeamarkError):
    """The checkpoint directory refused a record, or to be read: full, read-only or away. Nothing is
    lost: the next start goes on from what is stored."""


class StorageHangsError(RecordNotStoredError, TimeoutError):
    """A call to the checkpoint storage has not returned by its deadline. It may still be done, or
    not; the next start goes on from what is stored."""


class CheckpointExpiredError(SeamarkError):
    """An epoch was not planned or not decided within the checkpoint timeout; it is aborted and runs
    again."""


class TooManyFailedCheckpointsError(SeamarkError):
    """More epochs failed one after another than the job tolerates; lists the reason of each."""


class WatermarkLostError(SeamarkError):
    """Spark's plan gives a stateful operator no watermark, though its stream has one: its rows
    would never come. Found before an epoch's tasks run; nothing of it was written."""


class QueryHangsError(SeamarkError):
    """Spark's query, or a thread of this driver, does not end: a file system or a function hangs.
    End the program; the next start settles what is open."""

"""All errors of Seamark, as one tree.

A message names the object, the value found and the remedy. `UserError` and its subclasses are the
caller's mistakes: the command line shows them as one paragraph, without a traceback.
"""

from collections.abc import Iterable, Sequence

from seamark.model.findings import Finding


class SeamarkError(Exception):
    """The root: `except SeamarkError` catches everything Seamark raises on purpose."""


class UserError(SeamarkError):
    """A fault within the caller's reach: a value, a file, a missing topic. `finding` is the
    finding, if the fault has a code; else None."""

    def __init__(self, what: object = "") -> None:
        super().__init__(str(what))
        self.finding = what if isinstance(what, Finding) else None


class ConfigurationError(UserError, ValueError):
    """A value refused when the object is built; nothing has been started or touched."""


class PreflightError(UserError):
    """A real server, asked at start, does not meet the job's needs; nothing was written."""


class MissingDependencyError(UserError):
    """A driver, jar or program needed by the job is not installed; names the command to get it."""


class DriverUnreachableError(SeamarkError):
    """No driver of the job answers: it has ended, was killed, or runs on another machine."""


class OperationFailedError(SeamarkError):
    """A request to a job from outside failed there, or was not done in time; names the reason."""


class StoppedError(SeamarkError):
    """The job was told to stop; nothing is lost, and the next start goes on."""


class SparkDiedError(SeamarkError):
    """The Spark JVM of this driver has ended; decided epochs are committed, all others aborted."""


class FencedError(SeamarkError):
    """A newer driver of the same job has taken over; this one has written nothing more."""


class CheckpointError(SeamarkError):
    """The checkpoint directory contradicts itself; going on could lose or duplicate rows."""


class CorruptRecordError(CheckpointError):
    """A stored record is torn, altered or of an unknown version; names the file."""


class DamagedCheckpointError(CheckpointError):
    """Files needed to go on, or to restore, are damaged or missing; found before any write.
    `problems` has a line for each file, beginning with its path; `restore_path` is the newest
    complete checkpoint, for ``job.run(restore=…)``, or None."""

    def __init__(
        self, message: str, problems: tuple[str, ...] = (), restore_path: str | None = None
    ) -> None:
        super().__init__(message)
        self.problems = problems
        self.restore_path = restore_path

    @classmethod
    def found(cls, what: str, problems: Sequence[str]) -> "DamagedCheckpointError":
        """Return the error with a line for each problem: ``<what>. Found: …``."""
        listed = "".join(f"\n  {line}" for line in problems)
        return cls(f"{what}. Found:{listed}", tuple(problems))


class RestoreError(UserError):
    """The checkpoint cannot be restored, or not into this directory. Nothing of either was
    changed."""


class SavepointError(UserError):
    """A directory is no whole savepoint, or a savepoint cannot be taken or read. No job's
    checkpoint was changed."""


class DrainedError(UserError):
    """The job was drained: its windows were closed early, so new rows would be late. All rows read
    are committed. The message names the checkpoints or savepoints to go on from."""


class DecisionMissingError(DamagedCheckpointError):
    """An epoch was committed to its sinks, but Spark's commit log no longer holds its entry."""


class DecisionVoidError(FencedError):
    """A fenced driver decided an epoch whose transactions are aborted; a restart runs it again.
    At-most-once: this driver's Spark planned an epoch that was claimed with another plan."""


class CommitFailedError(SeamarkError):
    """A decided epoch could not be committed within the deadline. It stays decided, and the next
    start of the job commits it again."""


class LostTransactionError(CommitFailedError):
    """A decided epoch's transaction is gone at the sink: its rows are not and never become visible.
    Names the epoch, the sink and the transaction; never downgraded to a log line. `transactions`
    has the handles of all that are gone, `unproved` those among them whose system has forgotten how
    they ended."""

    def __init__(
        self, message: str, transactions: Iterable[str] = (), unproved: Iterable[str] = ()
    ) -> None:
        super().__init__(message)
        self.transactions = frozenset(transactions)
        self.unproved = frozenset(unproved)


class LossRefusedError(UserError):
    """A loss cannot be accepted: nothing is lost, or nobody can prove it. Nothing was recorded."""


class RowsDeletedError(SeamarkError):
    """Kafka has deleted rows that the job had still to read; nothing of their epoch was written.
    Names topic, partition and offsets. A source with ``failOnDataLoss`` false goes on without
    them."""


class AbortFailedError(SeamarkError):
    """A transaction could not be proved aborted, so nothing may be written for its epoch."""


class WriteRefusedError(SeamarkError):
    """The sink's system refused rows during pre-commit; the epoch fails and nothing is visible."""


class UnreadableRecordError(SeamarkError):
    """A record of a source is not what its `value_format` says; names its topic, partition, offset.
    The epoch fails, and nothing of it is visible. ``on_bad_row="keep"`` has such records as
    rows."""


class SendRefusedError(CommitFailedError):
    """A write-ahead sink's target refuses a decided epoch's rows for a lasting reason. Raised by
    `send`. The rows stay in the checkpoint; the next start of the job sends them again."""


class PreCommitError(SeamarkError):
    """A sink's writer failed in a task, during a write or flush. The epoch fails, and nothing of it
    is visible. Names the sink and the writer's exception."""


class RecordNotStoredError(SeamarkError):
    """The checkpoint directory refused a read or a record: full, read-only or away.

    Nothing is lost: the next start goes on from the stored records.
    """


class StorageHangsError(RecordNotStoredError, TimeoutError):
    """A call to the checkpoint storage has not returned by its deadline. Its outcome is open; the
    next start goes on from the stored records."""


class CheckpointExpiredError(SeamarkError):
    """An epoch was not planned or not decided within the checkpoint timeout. It is aborted and runs
    again."""


class TooManyFailedCheckpointsError(SeamarkError):
    """More epochs failed in a row than the job tolerates; lists each reason."""


class WatermarkLostError(SeamarkError):
    """Spark's plan gives a stateful operator no watermark, though its stream has one. The
    operator's rows would never come. Found before an epoch's tasks: nothing was written."""


class StateWrittenTwiceError(SeamarkError):
    """Spark has run a task of a keyed function twice in an epoch, behind an exchange. Its decision
    would name the state of the first run, while the sinks have the rows of the second. The epoch
    fails, and runs again."""


class QueryHangsError(SeamarkError):
    """Spark's query or a thread of this driver does not end: a file system or a function hangs. End
    the program; the next start settles everything open."""

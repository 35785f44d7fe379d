"""Judges a run's failure: a failed checkpoint, a failed job, or an end without a restart.

In Spark a failed epoch ends its query, whatever the cause. Seamark separates a failed *checkpoint*
from a failed *job* here. The line is Flink's, as far as Spark lets the two be told apart:

- a failed checkpoint, counted by `tolerable_failed_checkpoints`. Either it expired
  (`CheckpointExpiredError`). Or a sink's writer raised in a task, in `create_writer`, `write` or
  `prepare_commit` (`PreCommitError`). Or the storage refused a record of Seamark's
  (`RecordNotStoredError`), or an entry of Spark's logs or a state file (known by the frames of
  Spark's stack trace).
- a failed job: anything else, e.g. the user's function or the source raised, or a decided epoch
  could not be committed. The restart strategy decides.
- fatal: going on could lose or double rows, another driver has the job, or no restart helps.

In Flink a sink's `write` runs in the task, and its error fails the job. Here writing and flushing a
sink's rows are one step, pre-commit, so an error in either fails the checkpoint.
"""

import re
from dataclasses import dataclass
from enum import Enum

from pyspark.errors import AnalysisException, PySparkException

from seamark.model.errors import (
    CheckpointError,
    CheckpointExpiredError,
    DecisionVoidError,
    DrainedError,
    FencedError,
    LostTransactionError,
    PreCommitError,
    QueryHangsError,
    RecordNotStoredError,
    RowsDeletedError,
    SparkDiedError,
    UserError,
    WatermarkLostError,
)
from seamark.model.uncaught import TRACEBACK, own_lines_in

_FATAL = (
    DrainedError,
    FencedError,
    LostTransactionError,
    RowsDeletedError,
    CheckpointError,
    SparkDiedError,
    QueryHangsError,
    WatermarkLostError,
    AnalysisException,
)
_PRE_COMMIT = re.compile(rf"{PreCommitError.__module__}\.{PreCommitError.__name__}: (.*)")
_STREAMING = r"\tat org\.apache\.spark\.sql\.execution\.streaming\."
_SPARK_WRITES = re.compile(
    # Spark's logs, all files of its checkpoint file manager, and commits of state stores
    rf"{_STREAMING}(checkpointing\.\w+\$?\w*\.(add|write|create|rename|mkdirs|close|flush)"
    rf"|state\.\w+\$?\w*\.(commit|writeUpdate|write|close|upload|saveCheckpoint|mkdirs))"
)
_ROOT_CAUSE = re.compile(r"^(?:Caused by: )?([\w.$]+(?:Exception|Error)\b.*)$", re.MULTILINE)
_DELETED = re.compile(r"failOnDataLoss to false\.\s+Reason:\s+(.+?)\.?\s*$", re.MULTILINE)
"""In the words of Spark's Kafka source, up to the end of the line with topic and offsets."""
_OTHER_FILES = re.compile(r"Wrong basePath (.+) for the root path: (\S+)")
_JAVA = re.compile(
    r"\n\tat |\n SQLSTATE| SQLSTATE: XXKST|\n\nJVM stacktrace|\nDriver stacktrace|\n=== Streaming"
)
_REFUSED = ("IOException", "FSError", "FileNotFound", "Access", "FileSystemException")


class Verdict(Enum):
    """The consequence of a failure outside checkpoints."""

    RESTARTABLE = "the restart strategy decides"
    FATAL = "the job ends"


def judge(error: BaseException, *, first_start: bool) -> "Verdict | CheckpointFailureReason":
    """Return the meaning of `error`, which ended a run or its start.

    `first_start`: the job has not run in this program yet. So neither a user's mistake (a wrong
    value, a missing topic) nor an unwritable storage counts as an outage.
    """
    if isinstance(error, DecisionVoidError):  # of FencedError's tree, but this driver is the newest
        return Verdict.RESTARTABLE
    if isinstance(error, _FATAL):
        return Verdict.FATAL
    if isinstance(error, UserError):
        return Verdict.FATAL if first_start else Verdict.RESTARTABLE
    if isinstance(error, CheckpointExpiredError):
        return CheckpointFailureReason.EXPIRED
    if isinstance(error, RecordNotStoredError):
        return Verdict.RESTARTABLE if first_start else CheckpointFailureReason.STORAGE
    if isinstance(error, PySparkException):
        trace = _trace(error)
        if _PRE_COMMIT.search(trace):
            return CheckpointFailureReason.PRE_COMMIT
        if _SPARK_WRITES.search(trace) and any(sign in _root(trace) for sign in _REFUSED):
            return CheckpointFailureReason.STORAGE
    return Verdict.RESTARTABLE


def reason_of(error: BaseException) -> str:
    """Return the root cause in one line, for people."""
    if isinstance(error, PySparkException):
        trace = _trace(error)
        pre_commit = _PRE_COMMIT.search(trace)
        return pre_commit[1] if pre_commit else _root(trace) or str(error).splitlines()[0]
    return f"{error}" or type(error).__name__


def of_source(error: BaseException, job: str) -> BaseException:
    """Return `error`; RowsDeletedError for it if the source has deleted rows unread; UserError if a
    file source has the place of one with another directory."""
    trace = _trace(error) if isinstance(error, PySparkException) else ""
    if other := _OTHER_FILES.search(trace):
        return UserError(f"job {job}: {other_files('a file source', other[1], other[2])}")
    if (match := _DELETED.search(trace)) is None:
        return error
    return RowsDeletedError(
        f"job {job}: Kafka has deleted rows that were not read yet. {match[1]}. Nothing of this "
        "epoch was written. If the topic was deleted and made again, start the job again as it is: "
        "it says how to read the new one. To go on without these rows, set the source's option "
        "failOnDataLoss to false and start the job again; to lose none, let the topic keep its "
        "rows for longer than the job may be down (retention.ms, retention.bytes)"
    )


def other_files(source: str, reads: str, read: str) -> str:
    """Say that a source has the place of another one with other files, with the remedy."""
    return (
        f"{source} reads {reads}, and the one in its place has read {read}: Spark goes on from "
        "there, and nothing was written. Give each source its directory back; to read another one, "
        "give the source a uid of its own and go on from a savepoint: seamark run -n -s PATH"
    )


def last_words(error: PySparkException, what: str) -> str:
    """Return what to say of an `error` of Spark's query or tasks, after the sentence `what`: the
    program's own exception and lines, or Spark's message, without frames of Java and of ours."""
    trace = _trace(error)
    if TRACEBACK in trace:
        shown = own_lines_in(_JAVA.split(trace.rpartition(TRACEBACK)[2])[0])
    else:
        text = str(error).rpartition("terminated with exception: ")[2]
        shown = _JAVA.split(text.rpartition("Caused by: ")[2] if "\n\tat " in text else text)[0]
    return "\n".join([f"{what}.", *(line for line in shown.splitlines() if line.strip())])


def _trace(error: PySparkException) -> str:
    """Return Java's stack trace with all its causes; a task's causes are in the messages."""
    return str(getattr(error, "_stackTrace", None) or error)


def _root(trace: str) -> str:
    causes = _ROOT_CAUSE.findall(trace)
    return causes[-1] if causes else ""


class CheckpointFailureReason(Enum):
    """Why an epoch failed, as counted by `tolerable_failed_checkpoints` (as in Flink)."""

    EXPIRED = "it was not decided within the timeout"
    PRE_COMMIT = "a sink did not take its rows"
    STORAGE = "the checkpoint storage refused a write"


@dataclass(frozen=True)
class FailedCheckpoint:
    """An epoch that failed and runs again under the same number.

    `failed_at` is in seconds since 1970, for people.
    """

    epoch: int
    failed_at: float
    reason: CheckpointFailureReason
    message: str

    def __str__(self) -> str:
        return f"epoch {self.epoch}, {self.reason.name}: {self.message}"

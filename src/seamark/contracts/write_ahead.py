"""The write-ahead contract: rows that are spooled, and sent after the decision.

For a system that can neither hold rows back nor tell what became of a transaction.
`sinks/write_ahead` has the class to subclass, `sm.WriteAheadSink`, which does all but the sending.
docs/sinks/write-ahead.md is for users.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class EpochToken:
    """Names what is sent: one epoch of one sink of one job, and no other rows ever.

    The same over retries and restarts. A job that is restored from a checkpoint has a new `job_id`:
    the epochs that it runs have other tokens than those of the job that it comes from, but an epoch
    which that job had decided keeps its token.

    ``str(token)`` is ``<job id>-<sink uid>-<epoch>``: letters, digits, ``.``, ``_`` and ``-``.
    """

    job_id: str
    sink_uid: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.job_id}-{self.sink_uid}-{self.epoch}"


class Sender(Protocol):
    """The one thing that a write-ahead sink must be able to do."""

    @abstractmethod
    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        """Send all rows of one decided epoch; on return the target has them durably.

        Called in the driver, on a thread of its own, one epoch at a time and in order; `batches`
        are all tasks' rows, in an order that is the same at each call for this token. An epoch
        without rows is not sent.

        Called again with the same token and rows after any exception, and after a crash of the
        driver between its return and its record: a target that keeps the tokens it has taken, in
        one step with their rows, and drops what comes with one of them again, has each row exactly
        once. Raises `SendRefusedError`, or one of the sink's `permanent_errors`, for what will not
        pass: the job fails, and no row is lost. Any other exception is tried again. A call that
        takes longer than `send_timeout` fails the job too; it cannot be interrupted and may still
        send when the job is started again, so give each request a time-out of its own.
        """
        ...

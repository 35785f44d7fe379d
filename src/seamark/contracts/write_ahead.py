"""The write-ahead contract: rows are spooled, and sent after the decision.

It serves a system that can neither hold rows back nor tell a transaction's outcome. Subclass
`sm.WriteAheadSink` (`sinks/write_ahead`): it does everything but the sending.
docs/sinks/write-ahead.md is for users.
"""

import inspect
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from seamark.model.errors import SendRefusedError


@dataclass(frozen=True)
class EpochToken:
    """Names the rows sent: one epoch of one sink of one job, and never any other rows.

    The token stays the same over retries and restarts. A job restored from a checkpoint has a new
    `job_id`, so its own epochs have other tokens than the original job's; an epoch decided by the
    original job keeps its token.

    ``str(token)`` is ``<job id>-<sink uid>-<epoch>``: letters, digits, ``.``, ``_`` and ``-``.
    """

    job_id: str
    sink_uid: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.job_id}-{self.sink_uid}-{self.epoch}"


class Sender(Protocol):
    """The one ability of a write-ahead sink."""

    @abstractmethod
    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        """Send all rows of one decided epoch; on return the target has them durably.

        Called in the driver, on a thread of its own with the sink's Spark session, one epoch at a
        time and in order. `batches` are all tasks' rows, in the same order at each call for this
        token. An epoch without rows is not sent.

        Called again with the same token and rows after any exception, and after a crash of the
        driver between the return and its record. A target has each row exactly once if it stores
        each token in one step with its rows, and drops rows with a stored token.

        Raises `SendRefusedError`, or one of the sink's `permanent_errors`, for a lasting refusal:
        the job fails, and no row is lost. Any other exception is tried again. A call longer than
        `send_timeout` fails the job too. It cannot be interrupted, so give each request a time-out
        of its own: a start in the same program waits for the call, a start elsewhere sends again.
        """


def require_done(returned: Any, what: str) -> None:
    """Raise SendRefusedError for what a call returned, if its work is still to be done."""
    undone = (inspect.isawaitable, inspect.isgenerator, inspect.isasyncgen)
    if any(kind(returned) for kind in undone):
        raise SendRefusedError(
            f"{what} has returned a {type(returned).__name__}, which nobody runs; call "
            "asyncio.run, or read the generator to its end"
        )

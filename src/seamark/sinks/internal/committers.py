"""The common part of committers: the driver's side of a sink."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from seamark.contracts.sink import SinkContext
from seamark.model.errors import CommitFailedError
from seamark.model.ignored import ignored
from seamark.sinks.internal.committables import StagingSink
from seamark.sinks.internal.servers import tell

S = TypeVar("S", bound=StagingSink[Any])


def not_committed(name: str, epoch: int, error: object) -> CommitFailedError:
    """Return the error for decided rows that the target refuses for good."""
    return CommitFailedError(
        f"{name}: the rows of epoch {epoch} are decided and cannot be made visible: {error}. "
        "Nothing of this commit is visible; mend the table or the disk and start the job again, "
        "and they are committed"
    )


class Reasons:
    """A committer's reasons to ask again: logs each once, until the reason changes."""

    def __init__(self, log: logging.Logger, name: str) -> None:
        self._log = log
        self._name = name
        self.last = ""

    def say(self, what: str) -> None:
        """Log the reason, unless it equals the last one."""
        if what != self.last:
            self.last = what
            self._log.warning("%s: %s; trying again", self._name, what)

    def forget(self) -> None:
        """Clear the last reason, after a success."""
        self.last = ""


@contextlib.contextmanager
def closed_by_errors(connected: Any) -> Iterator[None]:
    """Close a connection, or its holder, at any error of the block."""
    try:
        yield
    except BaseException:
        connected.close()
        raise


class StagingCommitter(Generic[S]):
    """A committer of a `StagingSink`. `target` is the sink's in errors, by default its own
    description."""

    keeps_outcomes = True
    """Whether its system knows of a commit for as long as nobody alters its past."""

    def __init__(
        self, sink: S, context: SinkContext, log: logging.Logger, target: str = ""
    ) -> None:
        self._sink = sink
        self._context = context
        self._name = f"sink {context.sink_uid!r}: {target or sink.describe()}"
        self._log = log

    def preflight(self) -> None:
        """See `Committer`: look at the real system, and make there what the job needs."""
        tell(self._sink.look(self._context, self._name, start=True), self._log)

    def close(self) -> None:
        """See `Committer`: nothing is open between calls."""


class ConnectedCommitter(StagingCommitter[S]):
    """A committer that keeps one connection between calls. It is dropped at the first error: half
    an answer may be left in it."""

    def __init__(self, sink: S, context: SinkContext, log: logging.Logger) -> None:
        super().__init__(sink, context, log)
        self._connection: Any = None
        self._reasons = Reasons(log, self._name)

    def close(self) -> None:
        """See `Committer`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with ignored("the end of a connection"):  # its end is all that is wanted, in any state
                connection.close()

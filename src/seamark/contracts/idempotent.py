"""`IdempotentSink`: a sink whose rows have keys, so that writing them again changes nothing.

Rows are visible as they are written, before the epoch is decided: there is nothing to commit or to
take back, and a failed epoch is simply written once more. A reader may see it: values go on, back
to older rows of the repeated epoch, and on again. When the job has caught up every key is right, if
a replay makes the same rows and late writes are kept out (`create_writer`).

`seamark.verify.conformance.IdempotentConformance` tries a sink; `sinks/redis` is one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn

from seamark.contracts.sink import (
    AbortOutcome,
    CommitOutcome,
    Committer,
    CommittingWriter,
    Lingering,
    SinkContext,
    TwoPhaseCommitSink,
    WriterContext,
)
from seamark.model.errors import CheckpointError
from seamark.model.guarantee import SinkWay


class IdempotentSink(TwoPhaseCommitSink[Any]):
    """To be subclassed: `describe`, `preflight` and `create_writer` are to be written."""

    @property
    def way(self) -> SinkWay:
        """Idempotent: exactly-once, with a transient inconsistency while recovering."""
        return SinkWay.IDEMPOTENT

    @abstractmethod
    def preflight(self, context: SinkContext) -> None:
        """Check the real system before anything is written, at each start of the job, in the
        driver; raises PreflightError with the remedy. From its return on no writer of an older
        generation may change anything."""
        ...

    @abstractmethod
    def create_writer(self, context: WriterContext) -> CommittingWriter[Any]:
        """Called in an executor task, once per attempt and epoch.

        `write` and `prepare_commit` write the rows, each over the row of the same key, in their
        order; `prepare_commit` returns (), with every row durable. An attempt may be any time late:
        its driver was paused and has a successor, or its executor was given up. So the system
        should compare, with every write, `generation`, then `epoch`, then for a partition
        `attempt`, with the newest it has seen, and refuse what is older.
        """
        ...

    def check_transaction_scope(self, context: SinkContext) -> None:
        """Nothing to check: there is no transaction."""

    def create_committer(self, context: SinkContext) -> Committer[Any]:
        """Return a committer that does the preflight and has nothing to commit."""
        return _Preflight(self, context)

    def dump(self, committable: Any) -> NoReturn:
        """Never called: there are no committables."""
        raise CheckpointError(f"{self.describe()} has no committables, but got {committable!r}")

    def load(self, data: bytes) -> NoReturn:
        """Called if the checkpoint has some of another sink with the same uid."""
        raise CheckpointError(
            f"{self.describe()} has no committables, but the checkpoint has {len(data)} bytes of "
            "one under its uid: they are another sink's; give this one another uid"
        )


class _Preflight(Committer[Any]):
    def __init__(self, sink: IdempotentSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context

    def preflight(self) -> None:
        self._sink.preflight(self._context)

    def commit(self, committables: Sequence[Any]) -> Sequence[CommitOutcome]:
        return [self._sink.load(b"") for _ in committables]

    def abort(self, committables: Sequence[Any]) -> Sequence[AbortOutcome]:
        return [self._sink.load(b"") for _ in committables]

    def list_lingering(self) -> Sequence[Lingering[Any]]:
        return ()

    def close(self) -> None:
        pass

"""`IdempotentSink`: a sink of rows with keys, where a second write of a row changes nothing.

Rows are visible as they are written, before the epoch is decided. Nothing is committed or taken
back: a failed epoch is written again. A reader may see values go on, back to older rows of the
repeated epoch, and on again. After the replay every key is right, if the replay makes the same rows
and late writes are kept out (`create_writer`).

`seamark.verify.conformance.IdempotentConformance` tests a sink; `sinks/redis` is an example.
"""

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
    """Subclass it with `describe`, `preflight` and `create_writer`."""

    @property
    def way(self) -> SinkWay:
        """Return IDEMPOTENT: exactly-once, with a transient inconsistency during recovery."""
        return SinkWay.IDEMPOTENT

    @abstractmethod
    def preflight(self, context: SinkContext) -> None:
        """Check the real system before anything is written; raises PreflightError with the remedy.

        Called in the driver, at each start of the job. Then no older writer may change anything.
        """

    @abstractmethod
    def create_writer(self, context: WriterContext) -> CommittingWriter[Any]:
        """Called in an executor task, once per attempt and epoch.

        `write` and `prepare_commit` write the rows in their order, each over the row with the same
        key; `prepare_commit` makes every row durable and returns (). An attempt may be late by any
        time: its driver was paused and has a successor, or its executor was given up. So at every
        write the system should compare `generation`, then `epoch`, then (for a partition) `attempt`
        with the newest it has seen, and refuse older ones.
        """

    def check_transaction_scope(self, context: SinkContext) -> None:
        """Check nothing: there is no transaction."""

    def create_committer(self, context: SinkContext) -> Committer[Any]:
        """Return a committer for the preflight alone; there is nothing to commit."""
        return _Preflight(self, context)

    def dump(self, committable: Any) -> NoReturn:
        """Never called: there are no committables."""
        raise CheckpointError(f"{self.describe()} has no committables, but got {committable!r}")

    def load(self, data: bytes) -> NoReturn:
        """Refuse the bytes: they are committables of another sink with this uid."""
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

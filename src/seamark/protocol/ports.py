"""What the protocol's procedures run against: stored records, and the sinks of one job.

The coordinator implements them on real files and committers, the model checker in memory. Each
call is one atomic step; a driver may die, or sleep for a year, between any two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from seamark.protocol.states import Seal


@dataclass(frozen=True)
class EpochRecord:
    """All that is stored about one epoch: who prepared it, which seals stand, who committed it."""

    prepared: frozenset[int] = frozenset()
    seals: Mapping[int, Seal] = field(default_factory=dict)
    committed: int | None = None


class Records(Protocol):
    """The job's checkpoint directory. `Spark's commit log` is `latest_decision`."""

    def generations(self) -> list[int]:
        """Return the generations whose lease stands, ascending; the newest is never forgotten."""
        ...

    def claim_generation(self, generation: int) -> bool:
        """Create the lease exclusively; False if another driver has it."""
        ...

    def forget_generations(self, generations: list[int]) -> None:
        """Delete leases of fenced generations."""
        ...

    def latest_decision(self) -> int:
        """Return the highest epoch in Spark's commit log; -1 if it is empty."""
        ...

    def void_decision(self, epoch: int) -> None:
        """Delete the epoch's entry from Spark's commit log, so that Spark runs it again."""
        ...

    def latest_planned(self) -> int:
        """Return the highest epoch in Spark's offset log; -1 if it is empty."""
        ...

    def void_offsets(self, epoch: int) -> None:
        """Delete the epoch's entry from Spark's offset log, so that Spark plans it again."""
        ...

    def epochs(self) -> list[int]:
        """Return every epoch that has a record, in no order: one listing, nothing is read."""
        ...

    def epoch(self, epoch: int) -> EpochRecord:
        """Read all that is stored about one epoch; an empty record if nothing is."""
        ...

    def first_epoch(self) -> int:
        """Return the first epoch that this job's checkpoint covers (0, or where it was adopted)."""
        ...

    def claim_epoch(self, epoch: int, generation: int) -> bool:
        """Record exclusively that this generation processes the epoch; False if one does already.
        At-most-once only."""
        ...

    def write_prepared(self, epoch: int, generation: int, parts: Mapping[str, Any]) -> None:
        """Store the committables of all sinks, by uid, exclusively; raises FencedError if it
        exists."""
        ...

    def seal(self, epoch: int, generation: int, seal: Seal) -> Seal:
        """Create the attempt's seal if there is none; return the one that stands."""
        ...

    def write_committed(self, epoch: int, generation: int) -> None:
        """Record that every sink has committed; fine if it is recorded already."""
        ...


class Sinks(Protocol):
    """The committers of the job's sinks, by position in `uids`."""

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids of the job's sinks, in the order of commit."""
        ...

    def commit(self, uid: str, epoch: int, generation: int) -> None:
        """Commit the stored committables of one sink, to the end; raises LostTransactionError or
        CommitFailedError. Idempotent."""
        ...

    def abort(self, uid: str, epoch: int, generation: int) -> None:
        """Abort the stored committables of one sink, provably; raises AbortFailedError."""
        ...

    def abort_lingering(self, uid: str, below_generation: int) -> None:
        """Abort every open transaction of one sink whose generation is below the given one.
        Called only when all decided epochs of those generations are committed."""
        ...

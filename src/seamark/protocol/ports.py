"""The interfaces of the protocol's procedures: stored records, and the sinks of one job.

The coordinator implements them on real files and committers, the model checker in memory. Each call
is one atomic step; a driver may die, or sleep for a year, between any two calls.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from seamark.model.errors import LostTransactionError
from seamark.protocol.states import Seal

if TYPE_CHECKING:
    from seamark.protocol.accept_loss import Acceptance


@dataclass(frozen=True)
class EpochRecord:
    """The stored facts of one epoch: the generations with a prepared record, each attempt's seal,
    and the generation that committed the epoch (None: not committed)."""

    prepared: frozenset[int] = frozenset()
    seals: Mapping[int, Seal] = field(default_factory=dict)
    committed: int | None = None


class Records(Protocol):
    """The job's checkpoint directory. `latest_decision` reads Spark's commit log."""

    def generations(self) -> list[int]:
        """Return the generations with a lease, ascending; the newest lease is never deleted."""

    def claim_generation(self, generation: int) -> bool:
        """Create the lease exclusively; return False if another driver has it."""

    def is_last(self, generation: int) -> bool:
        """Return whether `end_lineage` has made this lease; False if it is deleted."""

    def end_lineage(self, generation: int, successor: Mapping[str, Any]) -> bool:
        """Create the lease exclusively as this lineage's last one, with its `successor`; return
        False if another driver has it."""

    def forget_generations(self, generations: list[int]) -> None:
        """Delete leases of fenced generations."""

    def latest_decision(self) -> int:
        """Return the highest epoch in Spark's commit log; -1 if it is empty."""

    def void_decision(self, epoch: int) -> None:
        """Delete the epoch's entry from Spark's commit log, so that Spark runs the epoch again."""

    def sealed_decision(self, epoch: int, generation: int) -> str | None:
        """Return the epoch's entry of Spark's commit log as the attempt's seal COMMIT holds it;
        None if the seal has none: the entry was gone when the attempt was sealed."""

    def put_back_decision(self, epoch: int, decision: str) -> None:
        """Create the epoch's entry of Spark's commit log, unless it exists."""

    def latest_planned(self) -> int:
        """Return the highest epoch in Spark's offset log; -1 if it is empty."""

    def void_offsets(self, epoch: int) -> None:
        """Delete the epoch's entry from Spark's offset log, so that Spark plans the epoch again."""

    def is_planned(self, epoch: int) -> bool:
        """Return whether Spark's offset log has an entry of the epoch."""

    def read_plan(self, epoch: int) -> str | None:
        """Return the epoch's entry of Spark's offset log; None in real-time mode, where Spark
        writes the entry after the attempt is stored. Raises RecordNotStoredError if it is gone."""

    def prepared_plan(self, epoch: int, generation: int) -> str | None:
        """Return the plan in the attempt's prepared record; None if there is none: the record is
        gone or has none, as in real-time mode."""

    def claimed_plan(self, epoch: int) -> str | None:
        """Return the plan in the epoch's claim (at-most-once); None if there is none."""

    def put_back_plan(self, epoch: int, plan: str) -> None:
        """Create the epoch's entry of Spark's offset log, unless it exists."""

    def epochs(self) -> list[int]:
        """Return every epoch with a record, in no order: one listing, no reads."""

    def epoch(self, epoch: int) -> EpochRecord:
        """Read the stored facts of one epoch; return an empty record if none are stored."""

    def first_epoch(self) -> int:
        """Return the first epoch of this job's checkpoint (0, or the epoch of its adoption)."""

    def claim_epoch(self, epoch: int, generation: int, plan: str | None) -> bool:
        """Record exclusively that this generation processes the epoch's `plan`; return False if the
        epoch is claimed already. At-most-once only."""

    def write_prepared(
        self, epoch: int, generation: int, parts: Mapping[str, Any], plan: str | None
    ) -> None:
        """Store all sinks' committables, by uid, and the epoch's `plan`; raises FencedError if the
        record exists."""

    def seal(self, epoch: int, generation: int, seal: Seal) -> Seal:
        """Create the attempt's seal unless it has one; return the standing seal. A seal COMMIT
        holds the epoch's entry of Spark's commit log."""

    def write_committed(self, epoch: int, generation: int) -> None:
        """Record that every sink has committed. A repetition changes nothing."""

    def accepted_losses(self, epoch: int, generation: int, uid: str) -> Set[str]:
        """Return the handles of one sink's transactions of an attempt whose loss was accepted."""

    def accept_loss(self, loss: "Acceptance", generation: int, lost: LostTransactionError) -> None:
        """Record exclusively that the loss of these transactions is accepted. Idempotent."""


class Sinks(Protocol):
    """The committers of the job's sinks, by position in `uids`."""

    @property
    def uids(self) -> tuple[str, ...]:
        """The uids of the job's sinks, in the order of commit."""

    def commit(self, uid: str, epoch: int, generation: int) -> None:
        """Commit all stored committables of one sink. Idempotent. Raises LostTransactionError or
        CommitFailedError."""

    def abort(self, uid: str, epoch: int, generation: int) -> None:
        """Abort the stored committables of one sink, with proof. Raises AbortFailedError."""

    def close_rewrites(
        self, uid: str, epoch: int, generation: int, lost: LostTransactionError
    ) -> None:
        """Make sure that no driver writes these lost transactions' rows again, by
        `write_again.close_chain`."""

    def abort_lingering(self, uid: str, below_generation: int) -> None:
        """Abort every open transaction of one sink from a generation below `below_generation`.
        Called only after all decided epochs of those generations are committed."""

"""The world outliving a driver: the records, Spark's two logs, the sinks; and the invariants on
them.

Spark's part follows Spark 4.2 as observed: a query starts at the *latest entry of the offset log*,
and at the epoch after it only if the commit log's latest entry is the same; both logs take entries
by exclusive create. Sinks follow Kafka: one open transaction per transactional id, and beginning
one on an id aborts the open one.

Invariants, checked at the moment a transaction becomes visible (`_check_visible`), whenever a
driver stops (`check_stop`) and at the end (`check_exactly_once`):
- only stored transactions of a decided epoch become visible, and no row twice in a sink;
- an epoch's rows come from one generation in all sinks;
- no driver ever stops for a lost transaction, an abort that found a commit, or records that
  contradict each other, but for the narrow case that `unkept` holds;
- in the end every input row is visible exactly once in every sink, and no transaction is open.

Where an operator accepts losses (`Setup.losses`), a row may be missing in the end only if its
transaction's loss was accepted; no such row is visible, then or later; and nothing is accepted
that is visible.

A restore may supersede the job's lineage (`Setup.restores`). Its successor is a world of its own,
with what the restore has copied, and ids of its own at the sinks; `visible` is one for all
lineages. So a row that two lineages bring, because both go on or because one was not settled, is
visible twice, and a row that none brings is missing in the end.

At-most-once (`Setup.at_most_once`) promises less: rows become visible before the decision, no row
twice in a sink; and a row is missing in the end only if an earlier run had begun its epoch and
skipped it, as the log says.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from seamark.model.errors import (
    AbortFailedError,
    CheckpointError,
    CommitFailedError,
    DecisionMissingError,
    DecisionVoidError,
    FencedError,
    LossRefusedError,
    LostTransactionError,
    RecordNotStoredError,
    SeamarkError,
    WriteRefusedError,
)
from seamark.protocol.accept_loss import Acceptance
from seamark.protocol.ports import EpochRecord
from seamark.protocol.states import Seal

if TYPE_CHECKING:
    from .driver import Driver
    from .replay import Call

ROWS_PER_EPOCH = 2


class Violation(AssertionError):  # noqa: N818 - it is what the checker looks for
    """The protocol broke its promise in this world."""


class UnprovedError(CommitFailedError):
    """The sink does not know a transaction's fate: no reason to write its rows again."""


class SparkFailedError(Exception):
    """Spark ended the query with an error, e.g. because a log entry exists already."""


@dataclass(eq=False)
class Transaction:
    """One transaction at a sink; `rows` are input rows, as written by the attempt."""

    id: str
    epoch: int
    generation: int
    rows: tuple[int, ...] = ()
    state: str = "open"
    rewrites: Transaction | None = None
    """The lost transaction with rows for this one to write again, from the spool."""


@dataclass
class Sink:
    """A transactional system. A `forgetful` one does not know the fate of a transaction after its
    id was used again (Kafka's INVALID_PRODUCER_EPOCH comes after a commit too)."""

    uid: str
    forgetful: bool
    newest: dict[str, Transaction] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)

    def begin(self, id_: str, epoch: int, generation: int) -> Transaction:
        before = self.newest.get(id_)
        if before is not None and before.state == "open":
            before.state = "aborted"
        transaction = self.newest[id_] = Transaction(id_, epoch, generation)
        self.transactions.append(transaction)
        return transaction

    def write(self, transaction: Transaction, rows: tuple[int, ...]) -> None:
        if transaction.state != "open":
            raise SparkFailedError(f"task failed: {transaction.id} is fenced")
        transaction.rows += rows

    def unknown(self, transaction: Transaction) -> bool:
        return self.forgetful and self.newest[transaction.id] is not transaction

    def open(self) -> list[Transaction]:
        return [t for t in self.transactions if t.state == "open"]


@dataclass(frozen=True)
class Setup:
    """The shape of one world."""

    sinks: int = 2
    tasks: int = 1
    max_concurrent: int = 1
    forgetful: bool = False
    first_epoch: int = 0
    at_most_once: bool = False
    uneven: bool = False
    """Whether some drivers plan smaller epochs than others (a changed rate limit)."""
    spool: bool = False
    """Whether sinks time transactions out, for their rows to be written again."""
    losses: bool = False
    """Whether sinks time transactions out, and an operator accepts the lost ones."""
    restores: bool = False
    """Whether restores supersede the job's lineage."""


class World:
    """All durable records. Methods named as in `ports.Records` are called through the journal."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.available = 2 * ROWS_PER_EPOCH
        self.leases: set[int] = set()
        self.last_leases: dict[int, World] = {}
        """The leases that end this lineage, each with its successor, if no later lease is there."""
        self.before: tuple[World, ...] = ()
        """The lineages before this one."""
        self.newest_ever = 0
        self.commits: set[int] = set()
        self.offsets: dict[int, int] = {}
        if setup.first_epoch:
            self.commits.add(setup.first_epoch - 1)
            self.offsets[setup.first_epoch - 1] = 0
        self.stored: dict[tuple[int, int], dict[str, list[Transaction]]] = {}
        self.plans: dict[tuple[int, int], int] = {}
        self.seals: dict[tuple[int, int], Seal] = {}
        self.confirmed: dict[int, int] = {}
        self.claims: dict[int, int] = {}
        self.claimed_plans: dict[int, int] = {}
        self.skipped: set[int] = set()
        self.chains: dict[Transaction, list[Transaction]] = {}
        """The recorded rewrites of each lost transaction; never deleted."""
        self.closed: set[Transaction] = set()
        """Lost transactions whose chain of rewrites an operator has closed."""
        self.damaged = False
        """Whether the spools are gone."""
        self.accepted: dict[tuple[int, int, str], frozenset[str]] = {}
        self.sinks = {
            uid: Sink(uid, setup.forgetful) for uid in ("alpha", "beta", "gamma")[: setup.sinks]
        }
        self.ever_decided: set[int] = set()
        self.visible: dict[str, set[int]] = {uid: set() for uid in self.sinks}
        self.visible_generation: dict[int, int] = {}
        self.unkept: set[int] = set()
        self.caller: Driver | None = None
        self.late: list[tuple[Driver, Call]] = []

    @property
    def uids(self) -> tuple[str, ...]:
        return tuple(self.sinks)

    def current(self) -> World:
        """The lineage that goes on under the job's name: the end of the chain of last leases."""
        newest = max(self.leases, default=0)
        return self.last_leases[newest].current() if self.is_last(newest) else self

    def restored(self, epoch: int) -> World:
        """A lineage that goes on after `epoch` of this one."""
        made = World(replace(self.setup, first_epoch=epoch + 1))
        made.available, made.visible, made.late = self.available, self.visible, self.late
        if epoch >= 0:
            made.offsets[epoch] = self.offsets[epoch]
        made.before = (*self.before, self)
        return made

    # --- Records

    def generations(self) -> list[int]:
        return sorted(self.leases)

    def claim_generation(self, generation: int) -> bool:
        if generation in self.leases:
            return False
        self.leases.add(generation)
        self.newest_ever = max(self.newest_ever, generation)
        return True

    def is_last(self, generation: int) -> bool:
        return generation in self.leases and generation in self.last_leases

    def end_lineage(self, generation: int, successor: World) -> bool:
        claimed = self.claim_generation(generation)
        if claimed:
            self.last_leases[generation] = successor
        return claimed

    def forget_generations(self, generations: list[int]) -> None:
        self.leases -= set(generations)
        if self.newest_ever not in self.leases:
            raise Violation("the newest generation was forgotten")

    def latest_decision(self) -> int:
        return max(self.commits, default=-1)

    def void_decision(self, epoch: int) -> None:
        self.commits.discard(epoch)

    def sealed_decision(self, epoch: int, generation: int) -> str | None:
        return None if epoch in self.unkept else "kept"

    def put_back_decision(self, epoch: int, decision: str) -> None:
        self.commits.add(epoch)

    def latest_planned(self) -> int:
        return max(self.offsets, default=-1)

    def void_offsets(self, epoch: int) -> None:
        self.offsets.pop(epoch, None)

    def is_planned(self, epoch: int) -> bool:
        return epoch in self.offsets

    def read_plan(self, epoch: int) -> int:
        if epoch not in self.offsets:
            raise RecordNotStoredError(f"offsets/{epoch} is gone")
        return self.offsets[epoch]

    def prepared_plan(self, epoch: int, generation: int) -> int | None:
        return self.plans.get((epoch, generation))

    def claimed_plan(self, epoch: int) -> int | None:
        return self.claimed_plans.get(epoch)

    def put_back_plan(self, epoch: int, plan: int) -> None:
        self.offsets.setdefault(epoch, plan)

    def epochs(self) -> list[int]:
        known = {e for e, _ in self.stored} | {e for e, _ in self.seals} | set(self.confirmed)
        return list(known)

    def epoch(self, epoch: int) -> EpochRecord:
        return EpochRecord(
            prepared=frozenset(g for e, g in self.stored if e == epoch),
            seals={g: seal for (e, g), seal in self.seals.items() if e == epoch},
            committed=self.confirmed.get(epoch),
        )

    def first_epoch(self) -> int:
        return self.setup.first_epoch

    def claim_epoch(self, epoch: int, generation: int, plan: int) -> bool:
        if epoch in self.claims:
            return False
        self.claims[epoch] = generation
        self.claimed_plans[epoch] = plan
        return True

    def write_prepared(
        self, epoch: int, generation: int, parts: dict[str, list[Transaction]], plan: int
    ) -> None:
        if (epoch, generation) in self.stored:
            raise FencedError(f"epoch {epoch} of generation {generation} is stored already")
        self.plans[epoch, generation] = plan
        self.stored[epoch, generation] = parts

    def seal(self, epoch: int, generation: int, seal: Seal) -> Seal:
        new = (epoch, generation) not in self.seals
        if seal is Seal.COMMIT and new and epoch not in self.commits:
            self.unkept.add(epoch)
        return self.seals.setdefault((epoch, generation), seal)

    def write_committed(self, epoch: int, generation: int) -> None:
        self.confirmed.setdefault(epoch, generation)

    def accepted_losses(self, epoch: int, generation: int, uid: str) -> frozenset[str]:
        return self.accepted.get((epoch, generation, uid), frozenset())

    def accept_loss(self, loss: Acceptance, generation: int, lost: LostTransactionError) -> None:
        self.accepted.setdefault((loss.epoch, generation, loss.uid), lost.transactions)
        for transaction in self.accepted_transactions(loss.uid):
            if seen := self.visible[loss.uid] & set(transaction.rows):
                raise Violation(f"{loss.uid}: rows {sorted(seen)} are given up and visible")

    def accepted_transactions(self, uid: str) -> list[Transaction]:
        """The transactions of one sink whose loss is accepted."""
        return [
            transaction
            for (epoch, generation, of), names in self.accepted.items()
            if of == uid
            for transaction in self.stored[epoch, generation][uid]
            if transaction.id in names
        ]

    def land_late_call(self) -> None:
        """Let the oldest call arrive of a caller gone meanwhile."""
        self.caller, call = self.late.pop(0)
        with contextlib.suppress(SeamarkError):
            getattr(self.caller.world, call.name)(*call.args)

    # --- Spark's two logs

    def plan(self, epoch: int, start: int) -> int:
        """Write offsets/<epoch> exclusively; return where the epoch ends."""
        if epoch in self.offsets:
            raise SparkFailedError(f"concurrent update: offsets/{epoch} exists")
        small = self.setup.uneven and self.caller is not None and self.caller.generation % 2
        self.offsets[epoch] = min(self.available, start + ROWS_PER_EPOCH - bool(small))
        return self.offsets[epoch]

    def decide(self, epoch: int) -> None:
        """Write commits/<epoch> exclusively."""
        if epoch in self.commits:
            raise SparkFailedError(f"concurrent update: commits/{epoch} exists")
        self.commits.add(epoch)
        self.ever_decided.add(epoch)

    # --- Sinks, one transaction at a time

    def committables(self, uid: str, epoch: int, generation: int) -> list[Transaction]:
        if (epoch, generation) not in self.stored:
            raise Violation(f"epoch {epoch} of generation {generation} was never stored")
        return self.stored[epoch, generation][uid]

    def commit(self, uid: str, transaction: Transaction) -> None:
        if self.setup.spool and self.sinks[uid].unknown(transaction):
            raise UnprovedError(f"{uid}: what became of {transaction} is not known any more")
        if self.sinks[uid].unknown(transaction) or transaction.state == "aborted":
            raise LostTransactionError(f"{uid}: {transaction} is gone", [transaction.id])
        if transaction.state == "open":
            transaction.state = "committed"
            self._check_visible(uid, transaction)

    def abort(self, uid: str, transaction: Transaction) -> None:
        if transaction.state == "committed" and not self.sinks[uid].unknown(transaction):
            raise AbortFailedError(f"{uid}: {transaction} is committed")
        if transaction.state == "open":
            transaction.state = "aborted"

    def expire(self, choice: int) -> Transaction | None:
        """A sink aborts one of its open transactions by itself, as after a time-out."""
        found = [t for sink in self.sinks.values() for t in sink.open()]
        if not found:
            return None
        transaction = found[choice % len(found)]
        transaction.state = "aborted"
        return transaction

    # --- the invariants

    def _check_visible(self, uid: str, new: Transaction) -> None:
        if not self.setup.at_most_once:
            self._check_decided(uid, new)
        for given_up in self.accepted_transactions(uid):
            if given_up in (new, new.rewrites):
                raise Violation(f"{uid}: the loss of {given_up} was accepted, and it is visible")
        if doubled := self.visible[uid] & set(new.rows):
            raise Violation(f"{uid}: rows {sorted(doubled)} are visible twice")
        self.visible[uid] |= set(new.rows)

    def _check_decided(self, uid: str, new: Transaction) -> None:
        if new.epoch not in self.ever_decided:
            raise Violation(f"{uid}: rows of the undecided epoch {new.epoch} are visible: {new}")
        if new.rewrites is not None and new not in self.chains.get(new.rewrites, []):
            raise Violation(f"{uid}: rows of a rewrite without a record are visible: {new}")
        of = new.rewrites or new
        if of not in self.stored.get((of.epoch, of.generation), {}).get(uid, []):
            raise Violation(f"{uid}: rows of a dead attempt are visible: {of}")
        if self.visible_generation.setdefault(of.epoch, of.generation) != of.generation:
            raise Violation(
                f"{uid}: epoch {of.epoch} is visible from generations "
                f"{self.visible_generation[of.epoch]} and {of.generation}"
            )

    def check_stop(self, driver: Driver, error: Exception) -> None:
        """Fail unless the protocol allows a driver to stop with `error`."""
        match error:
            case DecisionMissingError():
                allowed = self.newest_missing() is not None
            case DecisionVoidError():
                allowed = True
            case FencedError():
                allowed = driver.generation < self.newest_ever
            case LossRefusedError():
                allowed = True
            case LostTransactionError() if self.setup.losses:
                allowed = True  # the finale judges whether it stops once all is accepted
            case LostTransactionError() if self.setup.at_most_once:
                allowed = driver.generation < self.newest_ever  # its successor has aborted it
            case LostTransactionError() | AbortFailedError() | CheckpointError():
                allowed = False
            case CommitFailedError() | WriteRefusedError() | SparkFailedError():
                allowed = True
            case _:
                allowed = isinstance(error, SeamarkError)
        if not allowed:
            raise Violation(f"{driver.name} stopped: {type(error).__name__}: {error}") from error

    def newest_missing(self) -> int | None:
        """The newest decision that no seal holds, as a fenced driver had taken it back between the
        decision and the seal, if it is still missing: then, and only then, may the job stop and
        ask for it."""
        gone = [e for e in self.unkept if e in self.ever_decided - self.commits]
        return max(gone, default=None)

    def repair(self) -> bool:
        """Follow the error's remedy: put the missing file back. False if none is missing."""
        if self.newest_missing() is None:
            return False
        self.commits |= self.unkept
        self.unkept.clear()
        return True

    def check_rows(self) -> None:
        """Judge the rows visible in the end."""
        for uid, sink in self.sinks.items():
            may_miss = set(self.skipped) if self.setup.at_most_once else set()
            for transaction in self.accepted_transactions(uid):
                may_miss |= set(transaction.rows)
            of_all = [*sink.transactions]
            for world in self.before:
                of_all += world.sinks[uid].transactions
            seen = sorted(r for t in of_all if t.state == "committed" for r in t.rows)
            missing = set(range(self.available)) - set(seen) - may_miss
            if missing or len(seen) != len(set(seen)):
                raise Violation(
                    f"{uid}: rows 0 to {self.available - 1} went in, visible: {seen}"
                    + (f", skipped or given up: {sorted(may_miss)}" if may_miss else "")
                )

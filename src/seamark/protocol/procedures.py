"""The steps of the protocol, as generators that yield each `Point` as they reach it.

The coordinator drives them to the end on real files and sinks; the model checker drives several at
once, in any order, and drops them at any point. Both run this very code.

Invariants (checked by tests/model):
- every decided epoch's rows become visible exactly once, an undecided epoch's rows never;
- a sink is told to commit an attempt only after its seal says COMMIT, and to abort a stored attempt
  only after its seal says ABORT. A seal is created exclusively, so the two exclude each other, over
  all sinks and partitions of the epoch at once;
- a lost transaction stops the commit of its epoch until an operator accepts the loss;
- a generation g can seal COMMIT only for the epoch it was in when its successor claimed g+1: g
  reads the newest generation after the previous epoch's decision and before it stores its own.
"""

from collections.abc import Generator, Mapping
from typing import Any

from seamark.model.errors import (
    CheckpointError,
    CommitFailedError,
    DecisionMissingError,
    DecisionVoidError,
    FencedError,
    LostTransactionError,
)
from seamark.protocol.points import Point
from seamark.protocol.ports import EpochRecord, Records, Sinks
from seamark.protocol.states import Seal

Steps = Generator[Point, None, None]


def take_over(records: Records) -> Generator[Point, None, int]:
    """Claim the next generation for this driver and return it. Raises FencedError if a restore has
    superseded this lineage of the job.

    Nobody claims the generation after a last lease, because each claim follows a look at the lease
    before it: so a lineage that was superseded stays so.
    """
    while True:
        newest = max(records.generations(), default=0)
        if newest and records.is_last(newest):
            raise FencedError(
                f"generation {newest} was the last one here: a restore has begun the job's next "
                "lineage, which goes on under its name; start the job again"
            )
        if records.claim_generation(newest + 1):
            yield Point.GENERATION_CLAIMED
            return newest + 1


def supersede(generation: int, successor: Mapping[str, Any], records: Records) -> Steps:
    """End this lineage of the job for ever; `successor` goes on under its name.

    Called by a restore that has taken the lineage over as `generation`, has settled it, and has
    made its successor whole. Raises FencedError if another driver has taken it over meanwhile: then
    the lineage goes on, and the successor never begins.
    """
    last = generation + 1
    if not records.end_lineage(last, successor):
        raise FencedError(
            f"generation {last} was claimed by another driver; this one has superseded nothing"
        )
    # That driver's lease may have been deleted by its own successor, and then ours ends nothing.
    check_fence(records, last)
    yield Point.SUPERSEDED


def check_fence(records: Records, generation: int) -> None:
    """Raise FencedError if a newer driver has claimed this job."""
    newest = max(records.generations(), default=0)
    if newest != generation:
        raise FencedError(
            f"driver generation {generation} was superseded by generation {newest}: the job was "
            "started once more; this driver stops and has committed nothing since. Leave one of "
            "them running"
        )


def claim_epoch(epoch: int, generation: int, records: Records) -> bool:
    """At-most-once: claim the epoch for this driver, for ever, before the epoch is processed.

    Returns False if an earlier run has claimed the epoch. Its rows are then skipped. Raises
    DecisionVoidError if that run has claimed it with another plan: rows that this plan leaves to
    the next epoch may be in the claimed one. At the next start Spark gets the claimed plan back.
    """
    plan = records.read_plan(epoch)  # first: another driver's plan has a lease behind it
    check_fence(records, generation)
    if records.claim_epoch(epoch, generation, plan):
        return True
    if records.claimed_plan(epoch) not in (None, plan):  # None: a claim of an older version
        raise DecisionVoidError(
            f"epoch {epoch} was claimed by an earlier run with another plan than this run's, which "
            "is void: nothing was written. Start the job again; it skips the rows of that epoch"
        )
    return False


def store_attempt(epoch: int, generation: int, parts: Mapping[str, Any], records: Records) -> Steps:
    """Go from flushed transactions, `parts` by sink uid, to the prepared record (step 4)."""
    yield Point.PRE_COMMITTED
    plan = records.read_plan(epoch)  # first: another driver's plan has a lease behind it
    check_fence(records, generation)
    yield Point.FENCE_CHECKED
    records.write_prepared(epoch, generation, parts, plan)
    yield Point.PREPARED


def commit_attempt(epoch: int, generation: int, records: Records, sinks: Sinks) -> Steps:
    """Go from the decision to the committed record. The caller has seen the decision."""
    yield Point.DECIDED
    seal_decided(epoch, generation, records)
    yield Point.SEALED
    lost: LostTransactionError | None = None
    for uid in sinks.uids:
        try:
            sinks.commit(uid, epoch, generation)
        except LostTransactionError as error:  # the other sinks' rows need not be missing too
            gone = error.transactions
            if not gone or not gone <= records.accepted_losses(epoch, generation, uid):
                lost = lost or error
        except CommitFailedError:
            if not is_confirmed(epoch, records):
                raise
        yield Point.SINK_COMMITTED
    if lost is not None and not is_confirmed(epoch, records):
        raise lost
    records.write_committed(epoch, generation)
    yield Point.COMMITTED


def seal_decided(epoch: int, generation: int, records: Records) -> None:
    """Seal an attempt whose decision the caller has seen, so that no other driver takes it back.

    A savepoint seals its epoch, and the uncommitted epochs before it, oldest first; their commits
    then find the seals. Raises FencedError if a newer driver has aborted the attempt.
    """
    if records.seal(epoch, generation, Seal.COMMIT) is Seal.ABORT:
        raise FencedError(
            f"epoch {epoch} of generation {generation} was aborted by a newer driver before it was "
            "committed; this driver stops, and the newer one runs the epoch again"
        )


def is_confirmed(epoch: int, records: Records) -> bool:
    """Return whether another driver has completed this very commit.

    A sink cannot prove the outcome of a transaction whose id is in use again. But ids are used
    again only after the committed record exists. That record may be deleted since, so a later
    epoch's counts too; and while this driver sleeps in its look, all that it has listed may be
    deleted. So it looks again until nothing has changed meanwhile.
    """
    while True:
        latest, known = records.latest_decision(), sorted(records.epochs())
        if epoch <= unsettled(latest, records)[0]:
            return True
        if (latest, known) == (records.latest_decision(), sorted(records.epochs())):
            return False


def recover(generation: int, records: Records, sinks: Sinks) -> Generator[Point, None, int]:
    """Settle everything left by older generations, before any write; return the last decided epoch.

    Fences the older generations, commits the decided epochs, aborts the rest: in this order.
    """
    older = [g for g in records.generations() if g < generation]
    latest = yield from fence(older, generation, records)

    settled, open_epochs = unsettled(latest, records)
    for epoch, record in open_epochs.items():
        begun = record.committed is not None or Seal.COMMIT in record.seals.values()
        if epoch > latest and begun:
            check_fence(records, generation)  # a newer driver may have decided it since
            raise DecisionMissingError(
                f"epoch {epoch} was committed to its sinks, but Spark's commit log ends at "
                f"{latest}: commits/{epoch} is missing from the Spark checkpoint location. Running "
                "it again would write its rows twice. Put the file back, or restore a checkpoint "
                "that has it"
            )
    for epoch in range(settled + 1, latest + 1):
        winner = winner_of(records.epoch(epoch))
        if winner is None:
            check_fence(records, generation)  # a newer driver may have deleted the epoch since
            raise CheckpointError(
                f"epoch {epoch} is decided (commits/{epoch} exists) but no prepared record of it "
                "is: its transactions are unknown, so its rows may be missing from the sinks. "
                "Restore a complete checkpoint; if a plain Spark query has run here meanwhile, see "
                "docs/write-stream.md"
            )
        for point in commit_attempt(epoch, winner, records, sinks):
            yield Point.RECOVERY_COMMITTED if point is Point.COMMITTED else point

    for epoch in open_epochs:
        record = records.epoch(epoch)
        for attempt in sorted(record.prepared):
            if record.seals.get(attempt) is Seal.ABORT:
                yield from abort_attempt(epoch, attempt, sinks)
    for uid in sinks.uids:
        sinks.abort_lingering(uid, generation)
        yield Point.SINK_ABORTED
    while (planned := records.latest_planned()) > latest + 1:
        # A fenced driver's Spark took its void decision as final and planned on. Spark starts at
        # its newest plan, so it would step over epoch `latest + 1`, at every start.
        check_fence(records, generation)
        records.void_offsets(planned)
        yield Point.PLAN_VOIDED
    put_back_plans(latest, records)
    claimed = records.claimed_plan(latest + 1)
    if claimed is not None:
        if records.is_planned(latest + 1) and records.read_plan(latest + 1) != claimed:
            check_fence(records, generation)
            records.void_offsets(latest + 1)
            yield Point.PLAN_VOIDED
        records.put_back_plan(latest + 1, claimed)
    # A generation without a lease is never sealed again. Only now is each older one settled.
    check_fence(records, generation)
    records.forget_generations(older)
    yield Point.RECOVERED
    return latest


def put_back_decision(epoch: int, records: Records) -> bool:
    """Put back the decision of an epoch sealed COMMIT where a fenced driver's `void_decision` has
    taken effect late. Returns whether there was anything to put back.

    Such a decision is never void: a decision is taken back only when every attempt is sealed ABORT.
    """
    for generation, seal in records.epoch(epoch).seals.items():
        if seal is Seal.COMMIT:
            decision = records.sealed_decision(epoch, generation)
            if decision is not None:
                records.put_back_decision(epoch, decision)
                return True
    return False


def put_back_plans(latest: int, records: Records) -> None:
    """Put back what Spark starts from, the plans of the last two decided epochs, where a fenced
    driver's `void_offsets` has taken effect late.

    A start also calls this before its recovery, to find its checkpoint whole. If recovery takes the
    decision back, the epoch runs again with this plan.
    """
    for epoch in range(max(latest - 1, 0), latest + 1):
        if not records.is_planned(epoch):
            record = records.epoch(epoch)
            attempt = winner_of(record)
            plan = None if attempt is None else records.prepared_plan(epoch, attempt)
            if plan is not None:
                records.put_back_plan(epoch, plan)


def check_continuity(epoch: int, last_decided: int) -> None:
    """Raise DecisionVoidError if Spark starts an epoch and the one before is not `last_decided`: a
    fenced driver has written a decision for it after the take-over."""
    if epoch != last_decided + 1:
        raise DecisionVoidError(
            f"Spark starts epoch {epoch}, but epoch {last_decided + 1} was decided by a driver "
            "that this one has fenced: that decision is void. Nothing was written for it; start "
            f"the job again, and epoch {last_decided + 1} runs again"
        )


def abort_attempt(epoch: int, generation: int, sinks: Sinks) -> Steps:
    """Abort one stored attempt, sealed ABORT, at every sink."""
    for uid in sinks.uids:
        sinks.abort(uid, epoch, generation)
        yield Point.SINK_ABORTED


def settle_own(generation: int, records: Records, sinks: Sinks) -> Steps:
    """Settle this generation's epochs when its run has ended and decides no more.

    Commits the stored epochs that are decided; seals and aborts the others. Covers an attempt whose
    record was written without this driver's knowledge, or is still on its way. Afterwards every
    open transaction of this generation and of older ones is lingering.
    """
    latest = records.latest_decision()
    settled, open_epochs = unsettled(latest, records)
    stored = {e for e, record in open_epochs.items() if generation in record.prepared}
    for epoch in range(settled + 1, max([latest + 1, *stored]) + 1):
        mine = epoch in stored
        if (mine and epoch <= latest) or records.seal(epoch, generation, Seal.ABORT) is Seal.COMMIT:
            # Undecided when read, and sealed COMMIT: a fenced driver's decision has since decided
            # this attempt, and a successor is committing it.
            yield from commit_attempt(epoch, generation, records, sinks)
        elif mine:
            yield from abort_attempt(epoch, generation, sinks)


def fence(older: list[int], generation: int, records: Records) -> Generator[Point, None, int]:
    """Seal the last decided epoch COMMIT, and the one that older generations could still decide
    ABORT; return the last decided epoch.

    An older driver may write the decision at any moment, before its attempt is sealed and after. A
    decision after the seal is void and is taken back.
    """
    while True:
        latest = records.latest_decision()
        if latest >= records.first_epoch():
            record = records.epoch(latest)
            winner = winner_of(record)
            if record.committed is not None or not (record.prepared or record.seals):
                pass
            elif winner is None:
                # Decided, and every stored attempt aborted. An attempt still to be stored must not
                # win it now.
                seals = []
                for old in older:
                    seals.append(records.seal(latest, old, Seal.ABORT))
                    yield Point.PREDECESSOR_SEALED
                if Seal.COMMIT in seals:
                    continue
                check_fence(records, generation)
                records.void_decision(latest)
                yield Point.DECISION_VOIDED
                continue
            elif record.seals.get(winner) is not Seal.COMMIT:
                # An older driver, asleep in its own fence, may take this epoch for open and be
                # about to abort it. The record may also be younger than the decision: of a newer
                # driver that has voided the decision and runs the epoch again.
                check_fence(records, generation)
                seal = records.seal(latest, winner, Seal.COMMIT)
                yield Point.PREDECESSOR_SEALED
                if seal is Seal.ABORT:
                    continue
        open_epoch = latest + 1
        seals = []
        for old in older:
            seals.append(records.seal(open_epoch, old, Seal.ABORT))
            yield Point.PREDECESSOR_SEALED
        put_back_decision(open_epoch, records)
        if records.latest_decision() == latest:
            yield Point.PREDECESSORS_FENCED
            return latest


def unsettled(latest: int, records: Records) -> tuple[int, dict[int, EpochRecord]]:
    """Return the newest epoch settled with all before it, and the records above it, ascending.

    Epochs are committed in order. A committed record proves all earlier epochs settled: the driver
    of its epoch had settled them first. So only the newest few records are read; on an object store
    each read takes tens of milliseconds.
    """
    records_by_epoch: dict[int, EpochRecord] = {}
    for epoch in sorted(records.epochs(), reverse=True):
        record = records.epoch(epoch)
        if record.committed is not None and epoch <= latest:
            return epoch, dict(sorted(records_by_epoch.items()))
        records_by_epoch[epoch] = record
    return records.first_epoch() - 1, dict(sorted(records_by_epoch.items()))


def winner_of(record: EpochRecord) -> int | None:
    """Return the generation whose attempt is decided by this epoch's decision: the committed one,
    else the newest stored one not aborted; None if there is none. Its predecessors' attempts were
    sealed ABORT before it could be stored."""
    if record.committed is not None:
        return record.committed
    standing = [g for g in record.prepared if record.seals.get(g) is not Seal.ABORT]
    return max(standing, default=None)

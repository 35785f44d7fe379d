"""Wrong protocols, each one small step from the real one. The checker must reject every one.

A bug is a `Protocol` with one part replaced: a procedure, a rule of the sink's pool, or the
execution of one call (`execute` returns a function to run in the call's place, None for "as is").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FunctionType
from typing import Any

from seamark.model.errors import LostTransactionError
from seamark.protocol import accept_loss, procedures
from seamark.protocol.points import Point
from seamark.protocol.states import Seal

from .driver import Operator, Protocol
from .replay import Call
from .world import World

RIGHT = Protocol()
_commit_attempt, _recover = procedures.commit_attempt, procedures.recover
"""The right ones, also where `tests/simulation` puts a bug in their place."""


def _is_stored(world: World, epoch: int) -> bool:
    return any(e == epoch for e, _ in world.stored)


def _recover_aborting_the_last_decided(generation: int, records: Any, sinks: Any) -> Any:
    """Takes the last epoch for undecided when no committed record says otherwise."""
    latest = records.latest_decision()
    record = records.epoch(latest)
    if record.committed is None:
        for attempt in sorted(record.prepared):
            yield from procedures.abort_attempt(latest, attempt, sinks)
    return (yield from _recover(generation, records, sinks))


class _AllButLast:
    def __init__(self, sinks: Any) -> None:
        self._sinks = sinks
        self.uids = sinks.uids[:-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sinks, name)


def _commit_forgetting_a_sink(epoch: int, generation: int, records: Any, sinks: Any) -> Any:
    return _commit_attempt(epoch, generation, records, _AllButLast(sinks))


def _commit_oldest_attempt(world: World, call: Call) -> Callable[[], None] | None:
    """Commits the first stored attempt at the epoch, whoever's decision it was."""
    if call.name != "commit":
        return None
    uid, epoch, _ = call.args
    oldest = min(g for e, g in world.stored if e == epoch)

    def commit() -> None:
        for transaction in world.committables(uid, epoch, oldest):
            world.commit(uid, transaction)

    return commit


def _no_seal(world: World, call: Call) -> Callable[[], Seal] | None:
    return (lambda: call.args[2]) if call.name == "seal" else None


def _commit_lingering(world: World, call: Call) -> Callable[[], None] | None:
    if call.name != "abort_lingering":
        return None

    def commit() -> None:
        for transaction in world.sinks[call.args[0]].open():
            if transaction.generation < call.args[1]:
                world.commit(call.args[0], transaction)

    return commit


def _recover_without_abort(generation: int, records: Any, sinks: Any) -> Any:
    """Commits decided epochs, and leaves the others to a later sweep."""
    latest = records.latest_decision()
    settled, _ = procedures.unsettled(latest, records)
    for epoch in range(settled + 1, latest + 1):
        winner = procedures.winner_of(records.epoch(epoch))
        if winner is not None:
            yield from procedures.commit_attempt(epoch, winner, records, sinks)
    yield Point.RECOVERED
    return latest


def _store_unfenced(epoch: int, generation: int, parts: Any, records: Any) -> Any:
    yield Point.PRE_COMMITTED
    records.write_prepared(epoch, generation, parts, records.read_plan(epoch))
    yield Point.PREPARED


def _plans_kept(world: World, call: Call) -> Callable[[], int] | None:
    return (lambda: -1) if call.name == "latest_planned" else None


def _settle(epochs: Iterable[int], generation: int, records: Any, sinks: Any) -> Any:
    """`settle_own` as it was first written: a COMMIT that it finds is left to others."""
    latest = records.latest_decision()
    for epoch in epochs:
        if epoch <= latest:
            yield from procedures.commit_attempt(epoch, generation, records, sinks)
        elif records.seal(epoch, generation, Seal.ABORT) is Seal.ABORT:
            yield from procedures.abort_attempt(epoch, generation, sinks)


def _settle_known(generation: int, known: tuple[int, ...], records: Any, sinks: Any) -> Any:
    return _settle(known, generation, records, sinks)


def _settle_stored(generation: int, known: tuple[int, ...], records: Any, sinks: Any) -> Any:
    stored = [
        epoch
        for epoch in records.epochs()
        if generation in (record := records.epoch(epoch)).prepared and record.committed is None
    ]
    return _settle(stored, generation, records, sinks)


def _commit_without_proof(epoch: int, generation: int, records: Any, sinks: Any) -> Any:
    """`commit_attempt` as it was first written: believes a forgetful sink."""
    yield Point.DECIDED
    if records.seal(epoch, generation, Seal.COMMIT) is Seal.ABORT:
        raise procedures.FencedError("aborted")
    yield Point.SEALED
    for uid in sinks.uids:
        sinks.commit(uid, epoch, generation)
        yield Point.SINK_COMMITTED
    records.write_committed(epoch, generation)
    yield Point.COMMITTED


def _committing_by(commit_attempt: Callable[..., Any]) -> Protocol:
    """The real protocol, also in its recovery, with another `commit_attempt`."""
    names = {**vars(procedures), "commit_attempt": commit_attempt}
    recover = FunctionType(procedures.recover.__code__, names)
    return replace(RIGHT, commit_attempt=commit_attempt, recover=recover)


def _claim_again(world: World, call: Call) -> Callable[[], bool] | None:
    """Takes an older generation's claim for void, as its driver is fenced."""
    if call.name != "claim_epoch":
        return None
    epoch, generation, plan = call.args
    if world.claims.get(epoch, generation) < generation:
        del world.claims[epoch]
    return lambda: world.claim_epoch(epoch, generation, plan)


def _not_prepared(epoch: int, generation: int, records: Any) -> bool:
    """Believes an epoch without a prepared record was never begun."""
    procedures.check_fence(records, generation)
    return not records.epoch(epoch).prepared


def _take_over_blindly(records: Any) -> Any:
    """`take_over` as it was before there were last leases."""
    generation = max(records.generations(), default=0) + 1
    while not records.claim_generation(generation):
        generation += 1
    yield Point.GENERATION_CLAIMED
    return generation


def _supersede_by_the_next_free(generation: int, successor: Any, records: Any) -> Any:
    """Takes any free lease for the last one, as a start does for its own."""
    last = max(records.generations()) + 1
    while not records.end_lineage(last, successor):
        last += 1
    yield Point.SUPERSEDED


def _supersede_without_a_second_look(generation: int, successor: Any, records: Any) -> Any:
    """Believes that a driver that took over meanwhile must still have its lease. The successor then
    begins at once, as its restore goes on to run it."""
    if not records.end_lineage(generation + 1, successor):
        raise procedures.FencedError("another driver has taken over")
    yield Point.SUPERSEDED


def _recover_nothing(generation: int, records: Any, sinks: Any) -> Any:
    """Leaves the old lineage as it is: its savepoint is there already."""
    yield Point.RECOVERED
    return records.latest_decision()


PLANTED: dict[str, Protocol] = {
    "commit before the decision": replace(RIGHT, is_decided=_is_stored),
    "abort what was decided": replace(RIGHT, recover=_recover_aborting_the_last_decided),
    "forget a sink": _committing_by(_commit_forgetting_a_sink),
    "trust a batch id as a token after restart": replace(
        RIGHT,
        seen_before=lambda world, uid, epoch: any(
            t.epoch == epoch and t.rows and (epoch, t.generation) in world.stored
            for t in world.sinks[uid].transactions
        ),
    ),
    "reuse an id while its outcome is open": replace(RIGHT, reusable=lambda used, settled: True),
    "commit another generation's transactions": replace(RIGHT, execute=_commit_oldest_attempt),
    "no seal": replace(RIGHT, execute=_no_seal),
    "skip check_continuity": replace(RIGHT, check_continuity=lambda epoch, last: None),
    "commit lingering transactions": replace(RIGHT, execute=_commit_lingering),
    "write before recovery has aborted": replace(RIGHT, recover=_recover_without_abort),
    "store without a look at the fence": replace(RIGHT, store_attempt=_store_unfenced),
}
"""Protocols never written, but plausible."""

PLANTED_AT_MOST_ONCE: dict[str, Protocol] = {
    "claim nothing": replace(RIGHT, claim_epoch=lambda epoch, generation, records: True),
    "take the prepared record for the claim": replace(RIGHT, claim_epoch=_not_prepared),
    "forget the claims of older generations": replace(RIGHT, execute=_claim_again),
}
"""Wrong ways to claim an epoch, at-most-once."""

CLAIM_UNFENCED = replace(
    RIGHT,
    claim_epoch=lambda epoch, generation, records: records.claim_epoch(
        epoch, generation, records.read_plan(epoch)
    ),
)
"""At-most-once: claims without a look at the fence. Random histories hardly ever show it."""

LEAVE_DELETED_PLANS = replace(
    RIGHT, execute=lambda world, call: (lambda: True) if call.name == "is_planned" else None
)
"""Takes the plan of a decided epoch for there. Hardly ever shown by random histories either."""


def _write_again_unrecorded(rewrites: Any) -> Any:
    """Commits a rewrite, and only then names it."""
    number = 1
    while not rewrites.is_recorded(number):
        rewrites.prepare()
        if rewrites.commit_own():
            rewrites.record(number)
            return
    rewrites.commit(number)


def _write_again_each_its_own(rewrites: Any) -> Any:
    """Takes no notice of another driver's record."""
    if rewrites.is_recorded(1) and rewrites.commit(1):
        return
    rewrites.prepare()
    rewrites.record_over(1)
    rewrites.commit_own()


def _forget_chains(world: World, call: Call) -> Callable[[], None] | None:
    if call.name != "write_committed":
        return None

    def forget() -> None:
        world.write_committed(*call.args)
        world.chains = {t: chain for t, chain in world.chains.items() if t.epoch != call.args[0]}

    return forget


PLANTED_WRITE_AGAIN: dict[str, Protocol] = {
    "commit a rewrite before its record": replace(RIGHT, write_again=_write_again_unrecorded),
    "each driver its own rewrite": replace(RIGHT, write_again=_write_again_each_its_own),
    "delete the records of rewrites with the epoch": replace(RIGHT, execute=_forget_chains),
}
"""Ways to double lost rows while writing them again."""


def _accept_unasked(world: World, call: Call) -> Callable[[], None] | None:
    """Takes an uncommitted epoch's transactions for lost, without asking their sink."""
    if call.name != "commit" or not isinstance(world.caller, Operator):
        return None

    def claim() -> None:
        found = world.committables(*call.args)
        raise LostTransactionError("nobody was asked", [t.id for t in found])

    return claim


def _accept_unconfirmed(loss: Any, records: Any, sinks: Any) -> Any:
    """Believes a sink that has forgotten."""
    names = {**vars(accept_loss), "is_confirmed": lambda epoch, records: False}
    steps = FunctionType(accept_loss.accept_loss.__code__, names)
    return (yield from steps(loss, records, sinks))


PLANTED_ACCEPTANCE: dict[str, Protocol] = {
    "accept a loss without asking the sink": replace(RIGHT, execute=_accept_unasked),
    "accept a loss beside a driver that writes again": replace(
        RIGHT, close_chain=lambda rewrites: iter(())
    ),
}
"""Ways to accept a loss that is none, or does not stay one."""


def _no_fence(older: Any, generation: int, records: Any) -> Any:
    """Aborts what an older driver may still decide."""
    return records.latest_decision()
    yield


PLANTED_ABORTS: dict[str, Protocol] = {
    "abort without a fence": replace(RIGHT, fence=_no_fence),
    "abort what a newer driver has begun": replace(RIGHT, aborts=lambda generation, own: True),
}
"""Ways of an operator's abort to lose rows."""

ACCEPT_UNCONFIRMED = replace(RIGHT, accept_loss=_accept_unconfirmed)
"""Accepts the loss of what another driver has committed, whose ids it uses again."""

UNPROVED = replace(RIGHT, believes_unproved=True)
"""Writes rows again although their transaction may have been committed."""

FIRST_VERSIONS: dict[str, Protocol] = {
    "keep the plans beyond a void decision": replace(RIGHT, execute=_plans_kept),
    "sweep at the end what a successor commits": replace(RIGHT, settle_own=_settle_stored),
    "settle at the end only what the driver knows": replace(RIGHT, settle_own=_settle_known),
    "believe a sink that has forgotten": _committing_by(_commit_without_proof),
}
"""Protocols of `procedures.py`, until the checker found their faults."""

PLANTED_SUPERSEDING: dict[str, Protocol] = {
    "start after the last lease": replace(RIGHT, take_over=_take_over_blindly),
    "supersede by any free lease": replace(RIGHT, supersede=_supersede_by_the_next_free),
    "supersede without a second look": replace(RIGHT, supersede=_supersede_without_a_second_look),
    "supersede what is not settled": replace(RIGHT, recover=_recover_nothing),
}
"""Wrong ways of a restore to supersede the job's lineage."""

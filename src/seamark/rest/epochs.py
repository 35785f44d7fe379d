"""The epochs under way in a driver with their phases, and the transactions they hold open.

These pages are Seamark's own. Clients ask for them often, so they are made from memory alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any

from pydantic import BaseModel

from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.task_reports import EpochProgress
from seamark.checkpoint.transactions import StoredPart
from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.model.stats_summary import UNKNOWN
from seamark.protocol.verdicts import Verdict
from seamark.rest.models import Hyphenated

TRANSACTIONS_SHOWN = 1000


class Phase(str, Enum):
    """The phase of an epoch."""

    IDLE = "IDLE"
    """No epoch is under way."""
    WAITING = "WAITING"
    """Held back by `min_pause`, by `max_concurrent_checkpoints`, or because the job is ending."""
    PROCESSING = "PROCESSING"
    """Spark's tasks read, process, write to the sinks and flush."""
    PRE_COMMIT = "PRE_COMMIT"
    """Every transaction is flushed, and the attempt is being stored."""
    DECISION = "DECISION"
    """The attempt is stored; Spark commits its state, and so decides the epoch."""
    COMMIT = "COMMIT"
    """The epoch is decided, and is being committed to the sinks."""


class Epoch(Hyphenated):
    """One epoch; `trigger_timestamp` is -1 before it is triggered."""

    id: int
    trigger_timestamp: int = UNKNOWN


class EpochUnderWay(Epoch):
    """An epoch not committed yet."""

    phase: Phase
    phase_since: int


class SavepointUnderWay(Hyphenated):
    """A savepoint of epoch `id`, being written."""

    id: int
    trigger_timestamp: int
    format: str


class EpochPage(EpochUnderWay):
    """The newest epoch; `id` is -1 when none is under way. `uncommitted` lists older epochs under
    way, `unrecorded` the ended epochs not in the checkpoint history yet."""

    last_completed: int
    uncommitted: list[EpochUnderWay]
    unrecorded: list[Epoch] = []
    savepoints: list[SavepointUnderWay] = []


class OpenTransaction(BaseModel):
    """A transaction in a sink's system, waiting for its commit. `transaction` is its name there,
    `state` the state of its epoch, `since` the end of its task, `verdict` that of `seamark txn`.
    Without a driver one row stands for `count` transactions of one stored attempt: `transaction`
    and `state` are "" then, and `since` is -1."""

    sink: str
    epoch: int
    generation: int
    transaction: str
    state: str
    since: int
    verdict: str = Verdict.IN_USE.value
    count: int = 1


class OpenTransactions(BaseModel):
    """The transactions of ended tasks; those of running tasks are not known to the driver yet. Of a
    job without a driver, those of its stored attempts, if they may be open."""

    transactions: list[OpenTransaction]
    truncated: bool


def epoch_page(coordinator: Coordinator | None) -> EpochPage:
    """Return the epochs and savepoints under way."""
    newest = EpochUnderWay(id=UNKNOWN, phase=Phase.IDLE, phase_since=UNKNOWN)
    if coordinator is None:
        return EpochPage(**dict(newest), last_completed=UNKNOWN, uncommitted=[])
    has_failed = coordinator.failure is not None
    epochs = [] if has_failed else coordinator.epochs.in_progress()
    shown = [_under_way(epoch, coordinator) for epoch in epochs]
    if coordinator.epochs.holds_back and not has_failed:
        newest.id, newest.phase = coordinator.last_stored + 1, Phase.WAITING
    elif shown:
        newest = shown.pop()
    elif coordinator.history:
        last = coordinator.history[-1]
        newest.phase_since = _at_ms(last, last.committed_s)
    return EpochPage(
        **dict(newest),
        last_completed=coordinator.last_committed,
        uncommitted=shown,
        # Asked after `in_progress`: an epoch ended in between is here, or is recorded.
        unrecorded=[
            Epoch(id=one.epoch, trigger_timestamp=_triggered_ms(one))
            for one in coordinator.statistics.unrecorded()
            if not any(one is epoch for epoch in epochs)
        ],
        savepoints=[
            SavepointUnderWay(
                id=one.id, trigger_timestamp=one.trigger_timestamp, format=one.savepoint_format
            )
            for one in coordinator.statistics.savepoints_in_progress()
        ],
    )


def open_transactions(
    coordinator: Coordinator | None, sinks: Mapping[str, TwoPhaseCommitSink[Any]]
) -> OpenTransactions:
    """Return the transactions of the epochs under way; `sinks` by uid."""
    if coordinator is None:
        return OpenTransactions(transactions=[], truncated=False)
    transactions: list[OpenTransaction] = []
    for epoch in coordinator.epochs.in_progress():
        for task in epoch.tasks:
            for uid, part in task.sinks.items():
                for committable in part.committables[: TRANSACTIONS_SHOWN + 1 - len(transactions)]:
                    transactions.append(
                        OpenTransaction(
                            sink=uid,
                            epoch=epoch.epoch,
                            generation=coordinator.generation,
                            transaction=sinks[uid].load(committable).handle,
                            state=epoch.state.value,
                            since=round(task.ended_at * 1000),
                        )
                    )
    return _shown(transactions)


def left_transactions(parts: Sequence[StoredPart]) -> OpenTransactions:
    """Return the transactions that a driver has left, of its stored attempts."""
    transactions = [
        OpenTransaction(
            transaction="",
            state="",
            since=UNKNOWN,
            **{**asdict(part), "verdict": part.verdict.value},
        )
        for part in parts
    ]
    return _shown(transactions)


def _shown(transactions: list[OpenTransaction]) -> OpenTransactions:
    truncated = len(transactions) > TRANSACTIONS_SHOWN
    return OpenTransactions(transactions=transactions[:TRANSACTIONS_SHOWN], truncated=truncated)


def _under_way(epoch: EpochProgress, coordinator: Coordinator) -> EpochUnderWay:
    phase, since_s = Phase.PROCESSING, epoch.started_s
    if epoch.decided_s:
        phase, since_s = Phase.COMMIT, epoch.decided_s
    elif epoch.stored_s:
        phase, since_s = Phase.DECISION, epoch.stored_s
    elif epoch.pre_committed_s:
        phase, since_s = Phase.PRE_COMMIT, epoch.pre_committed_s
        if coordinator.epochs.is_full:
            phase = Phase.WAITING
    return EpochUnderWay(
        id=epoch.epoch,
        trigger_timestamp=_triggered_ms(epoch),
        phase=phase,
        phase_since=_at_ms(epoch, since_s),
    )


def _triggered_ms(epoch: EpochProgress) -> int:
    return round(epoch.triggered_at * 1000)


def _at_ms(epoch: EpochProgress, moment_s: float) -> int:
    """Return one of an epoch's monotonic times in milliseconds since 1970."""
    return round((epoch.triggered_at + moment_s - epoch.started_s) * 1000)

"""Accepting the loss of a decided epoch's transactions: the steps, as a generator.

An operator accepts the loss of one sink's transactions in one epoch. From then on the commit of
this epoch goes on without them (`procedures.commit_attempt`).

Invariants (checked by tests/model):
- only a transaction reported as gone by its sink is accepted, while the epoch has no committed
  record: a sink cannot prove a commit whose id is in use again, and then the record exists;
- after the acceptance no driver makes these rows visible. A driver may be writing them again, so
  the chain of rewrites is closed first;
- an acceptance is for the transactions it names. The commit of any other one stays necessary.

Needs no lease: each step is safe beside a driver waking or starting at any moment.
"""

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum

from seamark.model.errors import LossRefusedError, LostTransactionError
from seamark.protocol.ports import Records, Sinks
from seamark.protocol.procedures import is_confirmed, seal_decided, winner_of


class LossPoint(Enum):
    """The points at which the command may die, besides the points of `points.py`."""

    LOSS_PROVED = "loss-proved"
    LOSS_ACCEPTED = "loss-accepted"


@dataclass(frozen=True)
class Acceptance:
    """One sink's loss in one epoch, with its reason and the person who accepts it.

    `unproved_too`: accept also transactions forgotten by their system; they may be visible.
    """

    epoch: int
    uid: str
    reason: str = ""
    accepted_by: str = ""
    unproved_too: bool = False


def accept_loss(
    loss: Acceptance, records: Records, sinks: Sinks
) -> Generator[LossPoint, None, LostTransactionError]:
    """Commit the sink's epoch as far as possible, accept the rest; return the error that lists it.

    Raises LossRefusedError if nothing is lost, or the loss is not proved; CommitFailedError while
    the sink cannot tell.
    """
    epoch, uid = loss.epoch, loss.uid
    record = records.epoch(epoch)
    winner = winner_of(record)
    if record.committed is not None:
        raise LossRefusedError(
            f"epoch {epoch} is committed at every sink: nothing of it is lost by this job"
        )
    if epoch > records.latest_decision() or winner is None:
        raise LossRefusedError(
            f"epoch {epoch} is not decided: it runs again at the next start, and nothing of it is "
            "lost"
        )
    seal_decided(epoch, winner, records)
    try:
        sinks.commit(uid, epoch, winner)
    except LostTransactionError as error:
        lost = error
    else:
        raise LossRefusedError(
            f"sink {uid!r}: nothing of epoch {epoch} is lost: all its transactions are committed, "
            "some of them perhaps just now. Start the job again"
        )
    yield LossPoint.LOSS_PROVED
    if is_confirmed(epoch, records):
        raise LossRefusedError(
            f"epoch {epoch} was committed at every sink by a driver meanwhile: nothing of it is "
            "lost"
        )
    if lost.unproved and not loss.unproved_too:
        raise LossRefusedError(
            f"sink {uid!r}: epoch {epoch}: its system cannot tell any more what became of "
            f"{len(lost.unproved)} transactions ({', '.join(sorted(lost.unproved)[:3])}): their "
            "rows may be visible. Look for them in the sink first; --force accepts their loss "
            "without proof"
        )
    sinks.close_rewrites(uid, epoch, winner, lost)
    records.accept_loss(loss, winner, lost)
    yield LossPoint.LOSS_ACCEPTED
    return lost

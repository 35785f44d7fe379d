"""Writing a lost transaction's rows again, from the spool: the steps, as a generator.

A decided epoch's transaction is *lost* when its system proves that it was aborted: timed out, or
rolled back by hand. If its rows were spooled, they go into a new transaction, and the new one can
be lost too. So a transaction has a chain of rewrites, numbered from 1, each named by a record.

Invariants (checked by tests/model):
- a rewrite is committed only through its record, and the record is created exclusively: every
  driver with the same lost transaction commits the same rewrite;
- number k + 1 is recorded only after number k is proved lost, so at most one of a chain is visible;
- a record is never deleted: a driver that slept through all of it must find the chain;
- an operator who accepts the loss (`accept_loss.py`) takes the next number himself, exclusively:
  no rewrite follows.

A rewrite without a record is lingering, and is aborted like any other.
"""

from collections.abc import Generator
from enum import Enum
from typing import Protocol

from seamark.model.errors import LossRefusedError, LostTransactionError


class RewritePoint(Enum):
    """The points at which a driver may die, besides the points of `points.py`."""

    REWRITE_PREPARED = "rewrite-prepared"
    REWRITE_RECORDED = "rewrite-recorded"
    REWRITE_COMMITTED = "rewrite-committed"
    REWRITES_CLOSED = "rewrites-closed"


class Rewrites(Protocol):
    """One lost transaction's chain. Each call is one atomic step for the protocol."""

    def is_recorded(self, number: int) -> bool:
        """Return whether the record of this number exists."""

    def prepare(self) -> None:
        """Write the spooled rows into a new transaction of this driver, and flush it: durable and
        invisible, as after a writer's `prepare_commit`."""

    def record(self, number: int) -> bool:
        """Create the record exclusively, naming the transaction made by `prepare`. If another
        driver's record stands, give the transaction up and return False."""

    def close(self, number: int) -> bool:
        """Create the record exclusively as the chain's end; return False if another one stands."""

    def is_closed(self, number: int) -> bool:
        """Return whether the record of this number is the chain's end."""

    def commit(self, number: int) -> bool:
        """Commit the transaction named by the record, whichever driver made it; return False if it
        is proved lost too. Raises CommitFailedError when neither can be proved in time, and
        LostTransactionError if the record closes the chain."""


def close_chain(rewrites: Rewrites) -> Generator[RewritePoint, None, None]:
    """Make sure that no driver writes the transaction again: an operator accepts its loss.

    Raises LossRefusedError if a driver has just written it again: its rows are visible then.
    """
    number = 1
    while True:
        if not rewrites.is_recorded(number) and rewrites.close(number):
            yield RewritePoint.REWRITES_CLOSED
            return
        if rewrites.is_closed(number):
            return
        try:
            visible = rewrites.commit(number)
        except LostTransactionError:  # the system has forgotten it, so nobody can commit it
            visible = False
        if visible:
            raise LossRefusedError(
                "a driver has just written the lost rows again, and they are visible: nothing is "
                "lost. Start the job again"
            )
        number += 1


def write_again(rewrites: Rewrites) -> Generator[RewritePoint, None, None]:
    """Make a transaction's rows visible, once, after it is proved lost."""
    number = 1
    while True:
        if not rewrites.is_recorded(number):
            rewrites.prepare()
            yield RewritePoint.REWRITE_PREPARED
            rewrites.record(number)
            yield RewritePoint.REWRITE_RECORDED
        if rewrites.commit(number):
            yield RewritePoint.REWRITE_COMMITTED
            return
        number += 1

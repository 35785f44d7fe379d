"""Maps a transaction's fate in its system to the committer's outcome: one table.

A ledger has a row for each ended transaction, written together with its end. For the epochs still
kept, a missing row proves that a transaction was never committed; for older ones it proves nothing.
docs/sinks/outcomes.md has the outcomes of all sinks.
"""

from enum import Enum

from seamark.contracts.sink import AbortOutcome, CommitOutcome

LEDGER_EPOCHS = 1000
"""The number of epochs of a job's sink kept behind the newest: far more than the coordinator ever
leaves unsettled. A savepoint can be older."""


class Fate(Enum):
    """The proved fate of a transaction to be ended. A ledger stores two of the values."""

    ENDED_NOW = "this call ended it, as it was asked to"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open, or being ended at this moment"
    FORGOTTEN = "ended too long ago: nothing tells how"
    GONE = "not open any more: nothing tells how it ended"
    NOT_PROVED = "not proved: its name has been used again"

    @property
    def of_commit(self) -> CommitOutcome:
        """The outcome of a commit."""
        return _OUTCOMES[self][0]

    @property
    def of_abort(self) -> AbortOutcome:
        """The outcome of an abort."""
        return _OUTCOMES[self][1]


_OUTCOMES = {
    Fate.ENDED_NOW: (CommitOutcome.COMMITTED, AbortOutcome.ABORTED),
    Fate.COMMITTED: (CommitOutcome.ALREADY_COMMITTED, AbortOutcome.COMMITTED),
    Fate.ABORTED: (CommitOutcome.LOST, AbortOutcome.ABORTED),
    Fate.OPEN: (CommitOutcome.RETRY, AbortOutcome.RETRY),
    Fate.FORGOTTEN: (CommitOutcome.UNKNOWN, AbortOutcome.RETRY),
    Fate.GONE: (CommitOutcome.UNKNOWN, AbortOutcome.ABORTED),
    Fate.NOT_PROVED: (CommitOutcome.RETRY, AbortOutcome.RETRY),
}


def may_have_forgotten(epoch: int, newest: int | None) -> bool:
    """Return whether a ledger without a row for a transaction of `epoch` may once have had it.
    `newest`: the highest epoch of that job's sink in the ledger (its row is always kept), or None.
    """
    return newest is not None and epoch < newest - LEDGER_EPOCHS

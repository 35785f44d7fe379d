"""How long a sink's ledger remembers, and what its silence proves.

A ledger has a row for each ended transaction, written together with its end. For epochs that it
still keeps, silence proves that a transaction was never committed; for older ones it proves
nothing. docs/sinks/outcomes.md has the outcomes of all sinks.
"""

from __future__ import annotations

LEDGER_EPOCHS = 1000
"""How many epochs of a job's sink are kept behind the newest: far more than the coordinator ever
leaves unsettled. A savepoint can be older."""


def may_have_forgotten(epoch: int, newest: int | None) -> bool:
    """Return whether a ledger that is silent about a transaction of `epoch` may have had its row.
    `newest`: the highest epoch of that job's sink in the ledger, which always stays; None: none."""
    return newest is not None and epoch < newest - LEDGER_EPOCHS

"""The verdict of the decision records on an open transaction, for an operator. Pure.

A driver needs no verdict: its recovery settles everything (`procedures.recover`). These rules
foretell the recovery.
"""

from enum import Enum

from seamark.protocol.ports import EpochRecord
from seamark.protocol.procedures import winner_of
from seamark.protocol.states import Seal


class Verdict(Enum):
    """The fate of an open transaction."""

    MUST_COMMIT = "must commit"
    """Its epoch is decided for it: its rows must become visible."""
    SAFE_TO_ABORT = "safe to abort"
    """Its rows belong to no decided epoch, and no driver can decide them any more."""
    IN_USE = "in use"
    """A living driver will end it."""
    UNKNOWN = "unknown"
    """The records do not tell, or nobody knows whether its driver lives."""


class DriverState(Enum):
    """Whether the driver with the newest lease lives."""

    LIVES = "lives"
    IS_GONE = "is gone"
    UNKNOWN = "unknown"


_WHILE = {
    DriverState.LIVES: Verdict.IN_USE,
    DriverState.IS_GONE: Verdict.SAFE_TO_ABORT,
    DriverState.UNKNOWN: Verdict.UNKNOWN,
}


def of_stored(
    generation: int, record: EpochRecord, *, decided: bool, driver: DriverState
) -> Verdict:
    """Return the verdict on a transaction of a stored attempt.

    `record` is its epoch's; `decided`: whether Spark's commit log holds the epoch. An undecided
    attempt is safe to abort only after its seal says so: the verb makes the seal first.
    """
    seal = record.seals.get(generation)
    if seal is Seal.ABORT:
        return Verdict.SAFE_TO_ABORT
    if seal is Seal.COMMIT or (decided and winner_of(record) == generation):
        return Verdict.IN_USE if driver is DriverState.LIVES else Verdict.MUST_COMMIT
    return Verdict.UNKNOWN if decided else _WHILE[driver]


def of_unstored(generation: int, leases: list[int], driver: DriverState) -> Verdict:
    """Return the verdict on a transaction in no stored attempt of an unsettled epoch.

    A generation without a lease is settled: nothing it stores counts any more.
    """
    if generation not in leases and generation < max(leases, default=0):
        return Verdict.SAFE_TO_ABORT
    return _WHILE[driver]

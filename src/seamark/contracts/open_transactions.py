"""Facts of open transactions from a sink's system: an optional part of the sink contract.

`seamark txn` shows them to operators. No decision rests on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from seamark.contracts.sink import Committable

C = TypeVar("C", bound=Committable, contravariant=True)


@dataclass(frozen=True)
class HeldUp:
    """Readers waiting for a transaction's end, at one place: of Kafka a topic's partition.

    `rows`: records beyond the last one seen by read_committed readers, other transactions' too.
    `first`: whether this transaction is the oldest open one there; None if not told.
    """

    place: str
    rows: int
    first: bool | None


@dataclass(frozen=True)
class OpenFacts:
    """One open transaction. Times are in seconds since 1970, by the system's clock; None where the
    system does not tell. `expires_at` is None also without a time-out."""

    started_at: float | None = None
    expires_at: float | None = None
    held_up: tuple[HeldUp, ...] = ()


@runtime_checkable
class DescribesTransactions(Protocol[C]):
    """A committer with more facts of its open transactions."""

    def describe_open(self, committables: Sequence[C]) -> Sequence[OpenFacts]:
        """Return the facts of each, in order; empty facts for an ended one.

        Raises AbortFailedError if the system does not answer within seconds.
        """
        ...

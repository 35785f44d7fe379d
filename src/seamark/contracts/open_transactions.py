"""What a sink's system tells of open transactions: an optional part of the sink contract.

`seamark txn` shows it to operators. No decision rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from seamark.contracts.sink import Committable

C = TypeVar("C", bound=Committable, contravariant=True)


@dataclass(frozen=True)
class HeldUp:
    """Readers that wait for a transaction's end, at one place: of Kafka a topic's partition.

    `rows`: records behind the place where read_committed readers stop, those of other transactions
    included. `first`: whether this transaction is the oldest one open there, so that readers stop
    at it; None if the system does not tell.
    """

    place: str
    rows: int
    first: bool | None


@dataclass(frozen=True)
class OpenFacts:
    """One open transaction. Times are in seconds since 1970, by the system's clock; None where the
    system does not tell. `expires_at` is None also for a transaction that never times out."""

    started_at: float | None = None
    expires_at: float | None = None
    held_up: tuple[HeldUp, ...] = ()


@runtime_checkable
class DescribesTransactions(Protocol[C]):
    """A committer whose system tells more of its open transactions."""

    def describe_open(self, committables: Sequence[C]) -> Sequence[OpenFacts]:
        """Return the facts of each, in order; empty facts for an ended one.

        Raises AbortFailedError if the system does not answer within seconds.
        """
        ...

"""What happened, as plain values for `checker.py`: what readers saw, and what is wrong with it.

Every produced row has a number, its position in the production. A reader's sight is an array of
numbers, so a million rows cost megabytes and milliseconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

UNKNOWN = -1
"""The number of a row that was never produced, or whose number cannot be read; the epoch of a row
that is in no known epoch."""
_PARTITION = np.int64(1 << 44)


class Kind(Enum):
    """The anomalies, as `docs/operations/verify.md` explains them."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    ABORTED_READ = "aborted read"
    PHANTOM = "phantom"
    REORDERED = "reordered"
    HIDDEN = "hidden"
    TORN_EPOCH = "torn epoch"
    NON_MONOTONIC_READ = "non-monotonic read"
    CROSS_SINK = "cross-sink difference"


@dataclass(frozen=True)
class Anomaly:
    """One broken promise, told once for each row: `rows` are the numbers of the rows it was found
    on. `where` is the sink or sinks, `reader` who saw it, at `at_s` seconds since 1970."""

    kind: Kind
    where: str
    reader: str
    at_s: float
    rows: tuple[int, ...]
    detail: str = ""

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.rows[:5])) + (", …" if len(self.rows) > 5 else "")
        detail = f"; {self.detail}" if self.detail else ""
        plural = "s" if len(self.rows) != 1 else ""
        return (
            f"{self.kind.value} in {self.where} (seen by the {self.reader} reader): "
            f"{len(self.rows)} row{plural}: {shown}{detail}"
        )


@dataclass(frozen=True)
class Read:
    """One read of one sink, from `begun_s` to `ended_s`.

    numbers: the row numbers seen. Those of a log are in the order of their places.
    places: the place of each row of a log, from `log_places`; None for a table.
    whole: it shows all that is visible; else only what came since the reader's last read.
    atomic: it shows one moment, as one SQL query does.
    times: how often each row was found counted, where rows stand for counts; None is once.
    """

    sink: str
    reader: str
    begun_s: float
    ended_s: float
    numbers: Numbers
    places: Numbers | None = None
    whole: bool = True
    atomic: bool = False
    times: Numbers | None = None


def log_places(partitions: Sequence[int] | Numbers, offsets: Sequence[int] | Numbers) -> Numbers:
    """Return places: they rise with the offset, partition by partition."""
    places: Numbers = np.asarray(partitions, np.int64) * _PARTITION + np.asarray(offsets, np.int64)
    return places


def partitions_of(places: Numbers) -> Numbers:
    """Return the partitions of places."""
    partitions: Numbers = places // _PARTITION
    return partitions


def count_rows(anomalies: Iterable[Anomaly]) -> dict[str, int]:
    """Count the rows with each kind of anomaly, zeros too."""
    counts = {kind.value: 0 for kind in Kind}
    for anomaly in anomalies:
        counts[anomaly.kind.value] += len(anomaly.rows)
    return counts


@dataclass
class Growing:
    """An array that grows at its end; `values` is a view of what was put in."""

    fill: float = 0
    dtype: type = np.int64
    _room: NDArray[Any] = field(init=False)
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._room = np.full(1024, self.fill, self.dtype)

    @property
    def values(self) -> NDArray[Any]:
        """All values, to be read and changed in place until the next growth."""
        return self._room[: self._count]

    def grow(self, count: int) -> None:
        """Be at least `count` long; new values are `fill`."""
        if count > len(self._room):
            room = max(count, len(self._room) * 5 // 4)
            more: NDArray[Any] = np.full(room, self.fill, self.dtype)
            more[: self._count] = self._room[: self._count]
            self._room = more
        self._count = max(count, self._count)

    def append(self, values: NDArray[Any]) -> None:
        """Put values at the end."""
        begun = self._count
        self.grow(begun + len(values))
        self._room[begun : self._count] = values

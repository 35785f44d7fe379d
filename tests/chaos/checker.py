"""The judge of a history, pure. It knows these anomalies:

- LOST: a produced row that the final reader does not see.
- DUPLICATED: a row that the final reader sees more often than it was produced.
- PHANTOM: a row seen that was never produced; or one that the concurrent reader saw at a place
  where the final reader sees nothing or another row: it was shown before it was committed.
- REORDERED: two rows of one key that a reader sees in another order than that of production.
- TORN: two sinks that were given the same rows do not hold the same rows in the end.

Each test of `test_checker.py` plants one of them in a history written by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tests.chaos.history import Pair, Produced, Seen


class Kind(Enum):
    LOST = "lost"
    DUPLICATED = "duplicated"
    PHANTOM = "phantom"
    REORDERED = "reordered"
    TORN = "torn between sinks"


@dataclass(frozen=True)
class Anomaly:
    """One broken promise; `row` is the row it was found on."""

    kind: Kind
    where: str
    row: object

    def __str__(self) -> str:
        return f"{self.kind.value} in {self.where}: {self.row}"


def check_log(
    where: str, produced: Sequence[Produced], final: Sequence[Seen], live: Sequence[Seen] = ()
) -> list[Anomaly]:
    """Judge a log: `final` is a last complete read, `live` the rows seen by a concurrent reader.

    A value must be unique among the produced rows of its key.
    """
    found = check_rows(where, produced, [Pair(s.key, s.value) for s in final])
    found += check_shown(where, final, live)
    for reader, rows in ((where, final), (f"{where} (concurrent reader)", live)):
        found += _reordered(reader, produced, rows)
    return found


def check_shown(where: str, final: Sequence[Seen], live: Sequence[Seen]) -> list[Anomaly]:
    """Judge a concurrent reader: the rows shown to it must be there in the end, at the same
    place."""
    places = {(s.partition, s.offset): s for s in final}
    return [
        Anomaly(Kind.PHANTOM, f"{where} (concurrent reader)", seen)
        for seen in live
        if places.get((seen.partition, seen.offset)) != seen
    ]


def check_rows(where: str, expected: Sequence[Pair], final: Sequence[Pair]) -> list[Anomaly]:
    """Judge a sink without order: `final` must hold the rows of `expected`, each as often."""
    want, have = Counter(map(tuple, expected)), Counter(map(tuple, final))
    found = [Anomaly(Kind.LOST, where, row) for row in (want - have).elements()]
    for row in (have - want).elements():
        found.append(Anomaly(Kind.DUPLICATED if row in want else Kind.PHANTOM, where, row))
    return found


def check_same(sinks: Mapping[str, Sequence[Pair]]) -> list[Anomaly]:
    """Judge sinks given the same rows: each must hold the same as the first."""
    (first, rows), *others = sinks.items()
    want = Counter(map(tuple, rows))
    found = []
    for name, theirs in others:
        have = Counter(map(tuple, theirs))
        for only, missing in ((want - have, name), (have - want, first)):
            found += [
                Anomaly(Kind.TORN, f"{first} and {name}", f"{row} is missing in {missing}")
                for row in only.elements()
            ]
    return found


def summary(anomalies: Sequence[Anomaly]) -> dict[str, int]:
    """Count the anomalies of every kind, zeros too."""
    counts = Counter(a.kind for a in anomalies)
    return {kind.value: counts[kind] for kind in Kind}


def require_none(anomalies: Sequence[Anomaly]) -> None:
    """Raise AssertionError with the counts and the first anomalies, if there is one."""
    if anomalies:
        shown = "\n".join(str(a) for a in anomalies[:20])
        raise AssertionError(f"{len(anomalies)} anomalies {summary(anomalies)}\n{shown}")


def _reordered(where: str, produced: Sequence[Produced], rows: Sequence[Seen]) -> list[Anomaly]:
    """A key lies in one partition, so its order is the order of offsets. A duplicate or a phantom
    is reported as such, not here."""
    position = {(p.key, p.value): i for i, p in enumerate(produced)}
    newest: dict[str, int] = {}
    told: set[tuple[str, str]] = set()
    found = []
    for seen in sorted(rows, key=lambda s: (s.partition, s.offset)):
        row = seen.key, seen.value
        if row in told or row not in position:
            continue
        told.add(row)
        if position[row] < newest.get(seen.key, -1):
            found.append(Anomaly(Kind.REORDERED, where, seen))
        newest[seen.key] = max(position[row], newest.get(seen.key, -1))
    return found

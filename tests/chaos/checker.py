"""The judge of `seamark verify` (`seamark.verify.checker`), asked by tests about rows of texts.

Rows of texts get numbers here; what is judged, and how, stands there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from seamark.verify.checker import Checker
from seamark.verify.history import Anomaly, Kind, Read, count_rows, log_places
from tests.chaos.history import Pair, Produced, Seen

__all__ = [
    "Anomaly",
    "Kind",
    "check_log",
    "check_rows",
    "check_same",
    "check_shown",
    "count_rows",
    "require_none",
]


def check_log(
    where: str, produced: Sequence[Produced], final: Sequence[Seen], live: Sequence[Seen] = ()
) -> list[Anomaly]:
    """Judge a log: `final` is a last complete read, `live` the rows seen by a concurrent reader.

    A value must be unique among the produced rows of its key.
    """
    rows = _Rows([(row.key, row.value) for row in produced], [row.key for row in produced])
    reads = [
        rows.read(where, reader, [(s.key, s.value) for s in sorted(seen)], sorted(seen))
        for reader, seen in (("concurrent", live), ("final", final))
    ]
    return rows.judge(reads[1], live=reads[:1])


def check_shown(where: str, final: Sequence[Seen], live: Sequence[Seen]) -> list[Anomaly]:
    """Judge a concurrent reader: the rows shown to it must be there in the end, at the same
    place."""
    rows = _Rows([*dict.fromkeys([*final, *live])], acknowledged=False)
    concurrent = rows.read(where, "concurrent", sorted(live), sorted(live))
    return rows.judge(rows.read(where, "final", sorted(final), sorted(final)), live=[concurrent])


def check_rows(where: str, expected: Sequence[Pair], final: Sequence[Pair]) -> list[Anomaly]:
    """Judge a sink without order: `final` must hold the rows of `expected`, each as often."""
    want, have = Counter(map(tuple, expected)), Counter(map(tuple, final))
    rows = _Rows([*want], times=[*want.values()])
    return rows.judge(rows.read(where, "final", [*have], times=[*have.values()]))


def check_same(sinks: Mapping[str, Sequence[Pair]]) -> list[Anomaly]:
    """Judge sinks given the same rows: each must hold the same as the first."""
    counted = {name: [*_counted(map(tuple, rows))] for name, rows in sinks.items()}
    rows = _Rows([*dict.fromkeys(row for one in counted.values() for row in one)], None, False)
    return rows.judge(*[rows.read(name, "final", one) for name, one in counted.items()])


def require_none(anomalies: Sequence[Anomaly]) -> None:
    """Raise AssertionError with the counts and the first anomalies, if there is one."""
    if anomalies:
        shown = "\n".join(str(a) for a in anomalies[:20])
        raise AssertionError(f"anomalies {count_rows(anomalies)}\n{shown}")


class _Rows:
    """Rows by their numbers, and the checker that knows them."""

    def __init__(
        self,
        rows: Sequence[Hashable],
        keys: Sequence[str] | None = None,
        acknowledged: bool = True,
        times: Sequence[int] | None = None,
    ) -> None:
        self._numbers = {row: number for number, row in enumerate(rows)}
        self._rows = rows
        names = {key: number for number, key in enumerate(dict.fromkeys(keys or []))}
        self._checker = Checker(ordered=keys is not None)
        numbers = np.arange(len(rows))
        self._checker.produced(
            np.array([names[key] for key in keys], np.int64) if keys else numbers,
            np.array(times, np.int64) if times is not None else None,
        )
        if acknowledged:
            self._checker.acknowledge(numbers)

    def read(
        self,
        sink: str,
        reader: str,
        rows: Sequence[Hashable],
        places: Sequence[Seen] | None = None,
        times: Sequence[int] | None = None,
    ) -> Read:
        """Return the read of these rows."""
        numbers = [self._numbers.get(row, -1) for row in rows]
        at = None
        if places is not None:
            at = log_places([s.partition for s in places], [s.offset for s in places])
        counts = np.array(times, np.int64) if times is not None else None
        whole = reader == "final"
        return Read(sink, reader, 0, 0, np.array(numbers, np.int64), at, whole, times=counts)

    def judge(self, *finals: Read, live: Sequence[Read] = ()) -> list[Anomaly]:
        for read in live:
            self._checker.read(read)
        self._checker.finish({read.sink: read for read in finals})
        return [self._named(anomaly) for anomaly in self._checker.anomalies]

    def _named(self, anomaly: Anomaly) -> Anomaly:
        rows = [str(self._rows[n]) for n in anomaly.rows[:5] if 0 <= n < len(self._rows)]
        detail = "; ".join(filter(None, [anomaly.detail, ", ".join(rows)]))
        return Anomaly(
            anomaly.kind, anomaly.where, anomaly.reader, anomaly.at_s, anomaly.rows, detail
        )


def _counted(rows: Iterable[Hashable]) -> Iterable[tuple[Hashable, int]]:
    """Tell the repetitions of a row apart."""
    seen: Counter[Hashable] = Counter()
    for row in rows:
        seen[row] += 1
        yield row, seen[row]

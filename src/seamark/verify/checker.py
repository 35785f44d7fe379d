"""The judge of a history, pure: no clock, no file, no system. It finds these anomalies:

- LOST: an acknowledged row that is not there in the end; a row counted too seldom.
- DUPLICATED: a row that one read shows more often than it was produced.
- ABORTED READ: a row shown before its epoch was decided, or shown and not there in the end.
- PHANTOM: a row that was never produced.
- REORDERED: two rows of one key that a log holds in another order than that of production.
- HIDDEN: a row of a committed epoch that a later read of the whole sink does not show.
- TORN EPOCH: a sink shows a row of an epoch, and not all rows of the epochs before.
- NON-MONOTONIC READ: a row that a reader saw is not in its next read.
- CROSS-SINK DIFFERENCE: a sink lacks rows of an epoch, after another sink has shown a later epoch;
  or two sinks do not hold the same rows in the end.

Each row is told once for each kind and sink. One cause may show as several anomalies.
`tests/unit/verify/test_checker.py` plants each of them in a history written by hand, beside a
neighbour that is fine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamark.verify.history import UNKNOWN, Anomaly, Growing, Kind, Numbers, Read, partitions_of

_NEVER = np.inf
HIDDEN_S = 60.0
"""How long a transaction left open may hide a committed row of a log."""
AT_ONCE_S = 1.0
"""The same for a table: nothing there hides one."""
AT_A_TIME = 1 << 16
"""Rows of a log whose order is judged in one step, which takes some 100 bytes for each."""


@dataclass
class _Sink:
    """What is known of one sink: its rows seen so far, and those reported already."""

    name: str
    first_seen_s: Growing = field(default_factory=lambda: Growing(_NEVER, np.float64))
    reported: dict[Kind, Growing] = field(default_factory=dict)
    newest_epoch: int = UNKNOWN
    phantoms: int = 0
    """How many a whole read has shown."""

    def unreported(self, kind: Kind, rows: Numbers, count: int) -> Numbers:
        """Return the rows not reported yet, and take them for reported. Rows without a number of
        their own are reported each time."""
        reported = self.reported.setdefault(kind, Growing(False, np.bool_))
        reported.grow(count)
        known = (rows >= 0) & (rows < count)
        new = ~known
        new[known] = ~reported.values[rows[known]].astype(bool)
        reported.values[rows[known]] = True
        return rows[new]


@dataclass
class _Reader:
    """What one reader has seen: counts for each row; and of a log its places and newest rows."""

    seen: Growing = field(default_factory=lambda: Growing(0, np.int32))
    places: list[Numbers] = field(default_factory=list)
    numbers: list[Numbers] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)


class Checker:
    """Judges the reads of one stream of rows, given to one or several sinks.

    Rows are announced by `produced` before they are sent, so a reader never sees a row before it
    is announced. `ordered`: a log must keep the order of each key.
    """

    def __init__(self, ordered: bool = True) -> None:
        self._ordered = ordered
        self._keys = Growing(UNKNOWN, np.int32)
        self._times = Growing(1, np.int32)
        self._acknowledged = Growing(False, np.bool_)
        self._epochs = Growing(UNKNOWN, np.int32)
        self._committed_s = Growing(_NEVER, np.float64)
        self._sinks: dict[str, _Sink] = {}
        self._readers: dict[tuple[str, str], _Reader] = {}
        self._decided: dict[int, float] = {}
        self._shown: list[tuple[float, int, str]] = []
        """When a reader had seen a newest epoch, and in which sink; epochs rise."""
        self.anomalies: list[Anomaly] = []

    # --- what is known of the rows

    @property
    def count(self) -> int:
        """How many rows have been announced."""
        return len(self._keys.values)

    @property
    def acknowledged(self) -> int:
        """How many rows must be there in the end."""
        return int(np.count_nonzero(self._acknowledged.values))

    def produced(self, keys: Numbers, times: Numbers | None = None) -> None:
        """Announce the next rows, by their keys. `times`: how often each is to be found counted."""
        self._keys.append(keys)
        self._times.append(np.ones(len(keys), np.int64) if times is None else times)
        self._acknowledged.grow(self.count)
        self._epochs.grow(self.count)
        self._committed_s.grow(self.count)

    def acknowledge(self, numbers: Numbers, times: Numbers | None = None) -> None:
        """The source has these rows: they must not be lost. `times` as in `produced`."""
        self._acknowledged.values[numbers] = True
        if times is not None:
            self._times.values[numbers] = times

    def place(self, numbers: Numbers, epochs: Numbers) -> None:
        """Tell the epochs of rows, as far as they are known."""
        self._epochs.values[numbers] = epochs

    def decided(self, epoch: int, at_s: float) -> None:
        """Tell when an epoch was decided; the first time counts."""
        self._decided.setdefault(epoch, at_s)

    def committed(self, numbers: Numbers, at_s: float) -> None:
        """Tell when an epoch with or after these rows was committed."""
        committed_s = self._committed_s.values
        committed_s[numbers] = np.minimum(committed_s[numbers], at_s)

    # --- what is known of the readers

    def read(self, read: Read) -> list[Anomaly]:
        """Judge one read, after the reads that ended before it; return what is new."""
        before = len(self.anomalies)
        sink = self._sinks.setdefault(read.sink, _Sink(read.sink))
        reader = self._readers.setdefault((read.sink, read.reader), _Reader())
        numbers = self._known(sink, read)
        if read.places is not None:
            self._judge_places(sink, reader, read)
        counts = np.bincount(numbers, minlength=self.count).astype(np.int32)
        reader.seen.grow(self.count)
        if read.whole:
            gone = (reader.seen.values > 0) & (counts == 0)
            if read.atomic:
                self._report(Kind.NON_MONOTONIC_READ, sink, read, np.flatnonzero(gone))
            reader.seen.values[:] = counts
            self._judge_hidden(sink, read, counts)
        else:
            reader.seen.values[:] += counts
        self._report(Kind.DUPLICATED, sink, read, np.flatnonzero(reader.seen.values > 1))
        sink.first_seen_s.grow(self.count)
        seen = np.flatnonzero(counts)
        first = sink.first_seen_s.values
        first[seen] = np.minimum(first[seen], read.ended_s)
        self._judge_epochs(sink, reader, read, seen)
        return self.anomalies[before:]

    def complete(self, sinks: Sequence[str]) -> bool:
        """Tell whether readers of each sink have seen every acknowledged row."""
        for name in sinks:
            seen = self._sinks.setdefault(name, _Sink(name)).first_seen_s
            seen.grow(self.count)
            if not np.isfinite(seen.values[self._acknowledged.values]).all():
                return False
        return True

    def undecided(self) -> list[Anomaly]:
        """Judge what was shown against the decisions told so far; return what is new."""
        before = len(self.anomalies)
        epochs = self._epochs.values
        if not self._decided or not len(epochs):
            return []
        at_s = np.full(max(max(self._decided), int(epochs.max())) + 2, -_NEVER)
        at_s[list(self._decided)] = list(self._decided.values())
        for sink in self._sinks.values():
            sink.first_seen_s.grow(self.count)
            # Epoch -1 takes the last place, which no epoch has.
            early = sink.first_seen_s.values < at_s[epochs]
            self.anomalies += self._by_epoch(sink, np.flatnonzero(early))
        return self.anomalies[before:]

    def finish(self, finals: Mapping[str, Read]) -> list[Anomaly]:
        """Judge the last, whole read of every sink, when all is quiet; return what is new."""
        if not finals:
            return []
        before = len(self.anomalies)
        self.undecided()
        counts: dict[str, Numbers] = {}
        for name, read in finals.items():
            self.read(read)
            sink, numbers = self._sinks[name], read.numbers
            known = numbers[(numbers >= 0) & (numbers < self.count)]
            counts[name] = np.bincount(known, minlength=self.count)
            lost = self._acknowledged.values & (counts[name] == 0)
            self._report(Kind.LOST, sink, read, np.flatnonzero(lost))
            vanished = np.isfinite(sink.first_seen_s.values) & (counts[name] == 0)
            self._report(
                Kind.ABORTED_READ, sink, read, np.flatnonzero(vanished), "not there in the end"
            )
            if read.times is not None:
                self._judge_times(sink, read)
            if read.places is not None:
                self._judge_shown(sink, read)
        self._judge_same(finals, counts)
        return self.anomalies[before:]

    # --- the judgements

    def _known(self, sink: _Sink, read: Read) -> Numbers:
        known = (read.numbers >= 0) & (read.numbers < self.count)
        phantoms = read.numbers[~known]
        # They have no number to be known by when the next read shows them again.
        self._report(Kind.PHANTOM, sink, read, phantoms[sink.phantoms if read.whole else 0 :])
        sink.phantoms = max(sink.phantoms, len(phantoms)) if read.whole else sink.phantoms
        return read.numbers[known]

    def _judge_hidden(self, sink: _Sink, read: Read, counts: NDArray[np.int32]) -> None:
        waited_s = read.begun_s - self._committed_s.values
        hidden = (counts == 0) & (waited_s > (AT_ONCE_S if read.atomic else HIDDEN_S))
        if hidden.any():
            detail = f"committed up to {waited_s[hidden].max():.0f} s before the read"
            self._report(Kind.HIDDEN, sink, read, np.flatnonzero(hidden), detail)

    def _judge_places(self, sink: _Sink, reader: _Reader, read: Read) -> None:
        assert read.places is not None
        if read.whole:
            reader.ends, reader.newest = {}, {}
        else:
            reader.places.append(read.places)
            reader.numbers.append(read.numbers)
            at = _changes(partitions_of(read.places))
            back = [
                int(number)
                for place, number in zip(read.places[at], read.numbers[at], strict=True)
                if place <= reader.ends.get(int(partitions_of(place)), UNKNOWN)
            ]
            self._report(Kind.NON_MONOTONIC_READ, sink, read, np.array(back, np.int64))
        for place in read.places[_lasts(partitions_of(read.places))]:
            reader.ends[int(partitions_of(place))] = int(place)
        if self._ordered:
            reader.seen.grow(self.count)
            met = np.zeros(self.count, bool) if read.whole else reader.seen.values > 0
            for first in range(0, len(read.numbers), AT_A_TIME):
                self._judge_order(sink, reader, read, first, met)

    def _judge_order(
        self, sink: _Sink, reader: _Reader, read: Read, begin: int, met: NDArray[np.bool_]
    ) -> None:
        """A key's numbers must rise. A repetition, of a row `met` before, is a duplicate, told as
        such. Judges AT_A_TIME rows from `begin` on."""
        numbers = read.numbers[begin : begin + AT_A_TIME]
        numbers = numbers[(numbers >= 0) & (numbers < self.count)]
        _, first = np.unique(numbers, return_index=True)
        numbers = numbers[np.sort(first)]
        numbers = numbers[~met[numbers]]
        met[numbers] = True
        if not len(numbers):
            return
        keys = self._keys.values[numbers]
        by_key = np.argsort(keys, kind="stable")
        keys, numbers = keys[by_key], numbers[by_key]
        # One running maximum for all keys: each key's numbers lie above those of the keys before.
        lanes = np.cumsum(np.r_[False, keys[1:] != keys[:-1]]) * (self.count + 1)
        newest = np.array([reader.newest.get(int(key), -1) for key in keys[_changes(keys)]])
        floor = newest[np.cumsum(_changes(keys)) - 1]
        highest = np.maximum.accumulate(lanes + np.maximum(numbers, floor)) - lanes
        before = np.where(_changes(keys), floor, np.r_[-1, highest[:-1]])
        self._report(Kind.REORDERED, sink, read, numbers[numbers < before])
        for key, number in zip(keys[_lasts(keys)], highest[_lasts(keys)], strict=True):
            reader.newest[int(key)] = int(number)

    def _judge_epochs(self, sink: _Sink, reader: _Reader, read: Read, seen: Numbers) -> None:
        """Only an atomic read of everything can lack a row. Epochs before the newest one shown to
        anybody, before this read began, must be complete."""
        epochs = self._epochs.values
        newest = int(epochs[seen].max()) if len(seen) else UNKNOWN
        if read.atomic and read.whole:
            missing = (reader.seen.values == 0) & self._acknowledged.values & (epochs >= 0)
            torn = missing & (epochs < newest)
            self._report(
                Kind.TORN_EPOCH, sink, read, np.flatnonzero(torn),
                f"epoch {newest} is shown, epoch {_least(epochs[torn])} is not complete",
            )  # fmt: skip
            other, name = max(
                (
                    (epoch, name)
                    for at_s, epoch, name in self._shown
                    if at_s < read.begun_s and name != sink.name
                ),
                default=(UNKNOWN, ""),
            )
            late = missing & (epochs < other) & ~torn
            self._report(
                Kind.CROSS_SINK, sink, read, np.flatnonzero(late),
                f"{name} had shown epoch {other}, epoch {_least(epochs[late])} is not complete",
            )  # fmt: skip
        if newest > sink.newest_epoch:
            sink.newest_epoch = newest
            self._shown.append((read.ended_s, newest, sink.name))

    def _by_epoch(self, sink: _Sink, early: Numbers) -> list[Anomaly]:
        rows = sink.unreported(Kind.ABORTED_READ, early, self.count)
        anomalies = []
        for epoch in np.unique(self._epochs.values[rows]):
            of_epoch = rows[self._epochs.values[rows] == epoch]
            at_s = float(sink.first_seen_s.values[of_epoch].min())
            before_s = self._decided[int(epoch)] - at_s
            anomalies.append(
                Anomaly(
                    Kind.ABORTED_READ, sink.name, "concurrent", at_s, tuple(of_epoch.tolist()),
                    f"shown {before_s:.3f} s before epoch {epoch} was decided",
                )
            )  # fmt: skip
        return anomalies

    def _judge_times(self, sink: _Sink, read: Read) -> None:
        """A count that is too low has lost rows, one that is too high has some twice."""
        assert read.times is not None
        known = (read.numbers >= 0) & (read.numbers < self.count)
        numbers, times = read.numbers[known], read.times[known]
        want = self._times.values[numbers]
        for kind, wrong in ((Kind.LOST, times < want), (Kind.DUPLICATED, times > want)):
            if wrong.any():
                first = int(np.flatnonzero(wrong)[0])
                detail = f"row {numbers[first]} counts {times[first]}, not {want[first]}"
                self._report(kind, sink, read, numbers[wrong], detail)

    def _judge_shown(self, sink: _Sink, final: Read) -> None:
        """What a log has shown at a place must be at this place in the end."""
        assert final.places is not None
        order = np.argsort(final.places)
        places, numbers = final.places[order], final.numbers[order]
        for (name, reader_name), reader in self._readers.items():
            if name != sink.name or not reader.places:
                continue
            shown, what = np.concatenate(reader.places), np.concatenate(reader.numbers)
            at = np.minimum(np.searchsorted(places, shown), max(len(places) - 1, 0))
            same = np.zeros(len(shown), bool)
            if len(places):
                same = (places[at] == shown) & (numbers[at] == what)
            read = Read(name, reader_name, final.begun_s, final.ended_s, what)
            self._report(Kind.ABORTED_READ, sink, read, what[~same], "not at this place in the end")

    def _judge_same(self, finals: Mapping[str, Read], counts: Mapping[str, Numbers]) -> None:
        (first, *others) = finals
        for other in others:
            differ = np.flatnonzero(counts[first] != counts[other])
            self._report(
                Kind.CROSS_SINK, self._sinks[other], finals[other], differ,
                f"{first} holds other rows",
            )  # fmt: skip

    def _report(self, kind: Kind, sink: _Sink, read: Read, rows: Any, detail: str = "") -> None:
        new = sink.unreported(kind, rows, self.count)
        if len(new):
            self.anomalies.append(
                Anomaly(kind, sink.name, read.reader, read.ended_s, tuple(new.tolist()), detail)
            )


def _changes(values: Any) -> Any:
    """Tell where a run of equal values begins."""
    return np.r_[True, values[1:] != values[:-1]][: len(values)]


def _lasts(values: Any) -> Any:
    """Tell where a run of equal values ends."""
    return _changes(values[::-1])[::-1]


def _least(epochs: Any) -> int:
    return int(epochs.min()) if len(epochs) else UNKNOWN

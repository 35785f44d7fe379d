"""Names the fault of a cell from the difference of its sums, and finds the rows.

`first` and `second` are the sums of the rows' hashes and of their squares, found less expected.
With one row too many they are its hash and the square of it; with one too few, their negatives;
with one row changed, only that row y fits: with x = y - first, y*y - x*x = second.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seamark.checkpoint.row_hash import RowSums, row_hashes
from seamark.contracts.read_back import FoundRows, ReadableSink, ReadBack
from seamark.sinks.internal.columns import datetimes_as_text
from seamark.verify.audit.cells import Cell
from seamark.verify.audit.findings import Fault, Finding, FoundRow

_MASK = 2**64 - 1
MOST_EXAMPLES = 10


@dataclass
class Suspect:
    """One cell that differs. `wrong` are the rows that may be wrong; `too_many` and `too_few` the
    hashes of one row, where the sums tell it."""

    cell: Cell
    expected: RowSums
    found: RowSums
    too_many: int | None = None
    too_few: int | None = None
    copies: int = 0
    wrong: list[FoundRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        by = self.found - self.expected
        if by.rows == 1 and by.second == by.first * by.first & _MASK:
            self.too_many = by.first
        missing = -by.first & _MASK
        if by.rows == -1 and by.second == -missing * missing & _MASK:
            self.too_few = missing

    def look_at(self, found: FoundRows, hashes: Any) -> None:
        """Look for the wrong row among some rows of the cell."""
        by = self.found - self.expected
        if self.too_many is not None:
            chosen = hashes == np.uint64(self.too_many)
            self.copies += int(chosen.sum())
        elif by.rows == 0:
            before = hashes - np.uint64(by.first)
            chosen = hashes * hashes - before * before == np.uint64(by.second)
            for index in np.flatnonzero(chosen).tolist():
                self.too_many, self.too_few = int(hashes[index]), int(before[index])
        else:
            return
        self.wrong += rows_at(found, chosen)

    def findings(self, sink: str, known: Mapping[int, FoundRow]) -> Iterator[Finding]:
        """Yield the cell's faults. `known` are rows by hash, found elsewhere."""
        by, at, epoch = self.found - self.expected, str(self.cell), self.cell.epoch
        few, many = (f"{hash_ or 0:016x}" for hash_ in (self.too_few, self.too_many))
        lost = [row for hash_, row in known.items() if hash_ == self.too_few]
        if by.rows == 1 and self.too_many is not None and self.wrong:
            fault = Fault.DOUBLED if self.copies > 1 else Fault.FOREIGN
            yield Finding(fault, sink, epoch, 1, at, self.wrong[-1:], hash=many)
        elif by.rows == -1 and self.too_few is not None:
            yield Finding(Fault.MISSING, sink, epoch, 1, at, lost, hash=few)
        elif by.rows == 0 and self.too_few is not None and self.wrong:
            yield Finding(Fault.CHANGED, sink, epoch, 1, at, [self.wrong[-1], *lost], hash=few)
        elif by.rows < 0:
            yield Finding(Fault.MISSING, sink, epoch, -by.rows, at)
        elif by.rows > 0:
            yield Finding(Fault.FOREIGN, sink, epoch, by.rows, at)
        else:
            yield Finding(Fault.DIFFERENT, sink, epoch, self.expected.rows, at)


def rows_at(found: FoundRows, chosen: Any) -> list[FoundRow]:
    """Return the first few chosen rows, for people."""
    places = np.flatnonzero(chosen)[:MOST_EXAMPLES].tolist()
    return [
        FoundRow(
            datetimes_as_text(found.rows.slice(index, 1)).to_pylist()[0],
            found.place,
            -1 if found.positions is None else int(found.positions[index]),
        )
        for index in places
    ]


def rows_with(sink: object, asked: ReadBack, hashes: set[int]) -> dict[int, FoundRow]:
    """Return the target's rows with these hashes, one of each."""
    rows_found = dict[int, FoundRow]()
    wanted = np.array(sorted(hashes), np.uint64)
    if not isinstance(sink, ReadableSink) or not hashes:
        return rows_found
    for rows in sink.read_back(asked):
        values = row_hashes(rows.rows)
        for index in np.flatnonzero(np.isin(values, wanted)).tolist():
            only = np.zeros(len(values), bool)
            only[index] = True
            rows_found[int(values[index])] = rows_at(rows, only)[0]
    return rows_found


def replaces(row: FoundRow, hash_: int, lost: Suspect, known: Mapping[int, FoundRow]) -> bool:
    """Return whether a row of another writer stands for the one missing in a cell: it is the same,
    or agrees with it in half of its columns at least."""
    if lost.too_few is None or lost.too_many is not None:
        return False
    if lost.too_few == hash_:
        return True
    values = known[lost.too_few].values if lost.too_few in known else {}
    same = sum(row.values.get(name) == value for name, value in values.items())
    return len(values) > 1 and 2 * same >= len(values)


def replaced(
    sink: str, row: FoundRow, hash_: int, lost: Suspect, known: Mapping[int, FoundRow]
) -> Finding:
    """Return the finding of such a row."""
    at, epoch = str(lost.cell), lost.cell.epoch
    if lost.too_few == hash_:
        writer = "a transaction of another program"
        return Finding(Fault.MOVED, sink, epoch, 1, at, [row], to=writer, hash=f"{hash_:016x}")
    assert lost.too_few is not None
    before = known[lost.too_few]
    return Finding(Fault.CHANGED, sink, epoch, 1, at, [row, before], hash=f"{lost.too_few:016x}")


def exchanged(findings: list[Finding], suspects: list[Suspect]) -> list[Finding]:
    """Return the findings, with those of a row in the wrong cell told as one."""
    by_pair = {(s.too_few, s.too_many): s for s in suspects if s.too_few and s.too_many}
    lost = {s.too_few: s for s in suspects if s.too_few and not s.too_many}
    result, taken = [], set[str]()
    for suspect in suspects:
        few, many, place = suspect.too_few, suspect.too_many, str(suspect.cell)
        other = by_pair.get((many, few)) if few and many else None
        if other is not None and other is not suspect:
            if place not in taken:
                rows = [*suspect.wrong[:1], *other.wrong[:1]]
                taken |= {place, str(other.cell)}
                result.append(
                    Finding(Fault.SWAPPED, _sink(findings), suspect.cell.epoch, 2, place, rows,
                            to=str(other.cell))
                )  # fmt: skip
        elif many and not few and (source := lost.get(many)) is not None:
            taken |= {place, str(source.cell)}
            result.append(
                Finding(Fault.MOVED, _sink(findings), source.cell.epoch, 1, str(source.cell),
                        suspect.wrong[:1], to=place, hash=f"{many:016x}")
            )  # fmt: skip
    return [one for one in findings if one.place not in taken] + result


def _sink(findings: list[Finding]) -> str:
    return findings[0].sink if findings else ""

"""Cells: the parts of a target whose rows the ledger has sums of, and that the target tells apart.

By transaction, a cell is a task's rows in one target partition; several tasks whose rows the target
does not tell apart share their cells. Otherwise a cell is an epoch, or everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamark.checkpoint.ledger import LedgerEntry
from seamark.checkpoint.row_hash import NO_ROWS, RowSums
from seamark.checkpoint.sink_epoch import TaskLedger
from seamark.contracts.read_back import FoundRows

Part = tuple[int, int]
"""An epoch and a task of it."""


@dataclass(frozen=True, order=True)
class Cell:
    """`parts` are the (epoch, task) of its rows, () where the target tells no task; `epoch` is -1
    for all epochs together."""

    epoch: int
    target: str = ""
    parts: tuple[Part, ...] = ()

    def __str__(self) -> str:
        if self.epoch < 0:
            return "all epochs"
        tasks = sorted({task for _, task in self.parts})
        names = [f"epoch {self.epoch}"]
        if tasks:
            names.append(f"task {', '.join(map(str, tasks))}")
        if self.target:
            names.append(self.target)
        return ", ".join(names)


@dataclass
class Ledgered:
    """One sink's ledger, with the transactions' committables loaded: `owners` has the part of each
    of `committables`; None for one of an epoch that is not judged. `rewritten` parts lost a
    transaction and have another in its place."""

    committables: list[Any] = field(default_factory=list)
    owners: list[Part | None] = field(default_factory=list)
    rewritten: set[Part] = field(default_factory=set)
    tasks: dict[Part, TaskLedger] = field(default_factory=dict)
    epochs: dict[int, RowSums] = field(default_factory=dict)

    def add(
        self,
        entry: LedgerEntry,
        uid: str,
        committables: Sequence[Any],
        rewrites: Sequence[tuple[str, Any]] = (),
        *,
        judged: bool,
    ) -> None:
        """Add one epoch, with its committables in their order. `rewrites` took the place of the
        committables with these handles."""
        part = entry.sinks.get(uid)
        if part is None:
            return
        owners: list[Part | None] = []
        for task in part.ledger:
            owner = (entry.epoch, task.task) if judged else None
            owners += [owner] * task.committables
            if judged:
                self.tasks[entry.epoch, task.task] = task
        owners += [None] * (len(committables) - len(owners))  # of an older record
        self.committables += committables
        self.owners += owners[: len(committables)]
        for handle, rewrite in rewrites:
            lost = next(n for n, one in enumerate(committables) if one.handle == handle)
            self.committables.append(rewrite)
            self.owners.append(owners[lost])
            if (owner_of_lost := owners[lost]) is not None:
                self.rewritten.add(owner_of_lost)
        if judged and part.sums is not None:
            self.epochs[entry.epoch] = part.sums


class CellsByTransaction:
    """Sorts rows into cells by their transaction."""

    def __init__(self, ledgered: Ledgered, together: Sequence[tuple[int, ...]]) -> None:
        self._owners = ledgered.owners
        self._group: dict[Part, tuple[Part, ...]] = {part: (part,) for part in ledgered.tasks}
        for writers in together:
            parts = {self._owners[number] for number in writers} - {None}
            merged = sorted({p for part in parts if part for p in self._group[part]})
            for one in merged:
                self._group[one] = tuple(merged)
        self._named: dict[tuple[Part, ...], bool] = {}
        self.expected: dict[Cell, RowSums] = {}
        for part, task in ledgered.tasks.items():
            group = self._group[part]
            # A rewrite may have chosen other partitions for rows without a key.
            named = all(
                "" not in ledgered.tasks[one].targets and one not in ledgered.rewritten
                for one in group
            )
            self._named[group] = named
            for target, sums in task.targets.items():
                cell = Cell(group[0][0], target if named else "", group)
                self.expected[cell] = self.expected.get(cell, NO_ROWS) + sums

    def of(self, found: FoundRows) -> Cell | None:
        """Return the cell of found rows; None if they are not judged."""
        assert found.writers
        owner = self._owners[found.writers[0]]
        if owner is None:
            return None
        group = self._group[owner]
        return Cell(group[0][0], found.target if self._named[group] else "", group)


class CellsByEpoch:
    """Sorts rows into cells by a column with their epoch."""

    def __init__(self, ledgered: Ledgered, *, all_judged: bool) -> None:
        self.expected = {Cell(epoch): sums for epoch, sums in ledgered.epochs.items()}
        self._all_judged = all_judged
        self._last = max(ledgered.epochs, default=-1)

    def of(self, found: FoundRows) -> Cell | None:
        """Return the cell of found rows; None if they are not judged."""
        assert found.epoch is not None
        cell = Cell(found.epoch)
        judged = cell in self.expected or (self._all_judged and found.epoch < self._last)
        return cell if judged or found.epoch < 0 else None


class OneCell:
    """Has all rows in one cell."""

    def __init__(self, total: RowSums) -> None:
        self.expected: Mapping[Cell, RowSums] = {Cell(-1): total}

    def of(self, found: FoundRows) -> Cell | None:
        """Return the cell."""
        return Cell(-1)


Cells = CellsByTransaction | CellsByEpoch | OneCell

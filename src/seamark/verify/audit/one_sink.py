"""Audits one sink: reads its target, adds up the rows of each cell, and looks at those that differ.

The target is read once if nothing differs, else twice: the second time for the rows themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.checkpoint.ledger import Total
from seamark.checkpoint.row_hash import NO_ROWS, RowSums, row_hashes, sums
from seamark.contracts.read_back import FoundRows, ReadableSink, ReadBack
from seamark.contracts.sink import SinkContext, TwoPhaseCommitSink
from seamark.model.errors import UserError
from seamark.verify.audit.cells import (
    Cell,
    Cells,
    CellsByEpoch,
    CellsByTransaction,
    Ledgered,
    OneCell,
)
from seamark.verify.audit.faults import (
    MOST_EXAMPLES,
    Suspect,
    exchanged,
    replaced,
    replaces,
    rows_at,
    rows_with,
)
from seamark.verify.audit.findings import Comparison, Fault, Finding, FoundRow, SinkResult

_MOST_LOOKED_FOR = 100_000
_NO_BATCH = pa.record_batch({"none": pa.nulls(0)})


@dataclass(frozen=True)
class Question:
    """What to audit. `total` is None if totals cannot be compared, with `why` for people. With
    `foreign_expected` rows of other writers are no fault."""

    uid: str
    sink: TwoPhaseCommitSink[Any]
    context: SinkContext
    schema: pa.Schema
    ledgered: Ledgered
    total: Total | None
    why: str = ""
    epoch_column: str = ""
    by_transaction: bool = True
    foreign_expected: str = ""


class SinkReading:
    """A sink that is read back for its audit."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.result = SinkResult(question.uid, question.sink.describe())

    def readable(self) -> ReadableSink | None:
        """Return the sink, or None with a note if it cannot be read back."""
        sink = self._question.sink
        if isinstance(sink, ReadableSink):
            return sink
        self.result.notes.append("this sink has no read_back: its target cannot be read")
        return None

    def look_for(self, hashes: set[int]) -> dict[int, FoundRow]:
        """Return the target's rows with these hashes, for another sink's audit."""
        if self.result.comparison is Comparison.NONE:
            return {}
        return rows_with(self._question.sink, self._asked(), hashes)

    def _find(self, fault: Fault, epoch: int, rows: int, *place: Any, **more: Any) -> None:
        """Add a finding on this sink; the arguments are those of `Finding`."""
        self.result.findings.append(Finding(fault, self._question.uid, epoch, rows, *place, **more))

    def _asked(self) -> ReadBack:
        question = self._question
        return ReadBack(
            question.context,
            question.schema,
            question.ledgered.committables,
            question.epoch_column,
            question.by_transaction,
        )


class SinkAudit(SinkReading):
    """One sink's audit; call `run`, then `look_closer`."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self._cells: Cells | None = None
        self._suspects: dict[Cell, Suspect] = {}
        self._foreign = NO_ROWS
        self._strange: list[tuple[FoundRow, int]] = []
        """Rows of no transaction of the job's, with their hashes; not copies of the job's rows."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows as they are written."""
        return self._question.schema

    def run(self) -> None:
        """Read the target, and find the cells that differ."""
        sink, result = self.readable(), self.result
        if sink is None:
            return
        sums_found: dict[Any, RowSums] = {}
        try:
            for rows in sink.read_back(self._asked()):
                key = (rows.writers, rows.epoch, rows.target)
                sums_found[key] = sums_found.get(key, NO_ROWS) + sums(row_hashes(rows.rows))
        except UserError as error:
            result.notes.append(str(error))
            return
        self._cells = self._sorted(sums_found)
        if self._cells is None:
            return
        counted: dict[Cell, RowSums] = {}
        for (writers, epoch, target), added in sums_found.items():
            rows = FoundRows(_NO_BATCH, writers, epoch, target)
            if writers == ():
                self._foreign += added
            elif (cell := self._cells.of(rows)) is not None:
                counted[cell] = counted.get(cell, NO_ROWS) + added
        expected = self._cells.expected
        result.expected_rows = sum(part.rows for part in expected.values())
        result.found_rows = sum(part.rows for part in sums_found.values())
        for cell in sorted({*expected, *counted}):
            wanted, there = expected.get(cell, NO_ROWS), counted.get(cell, NO_ROWS)
            if wanted != there:
                self._suspects[cell] = Suspect(cell, wanted, there)
        self._note_foreign()

    def missing_hashes(self) -> set[int]:
        """Return the hashes of single rows known to be missing or replaced."""
        return {s.too_few for s in self._suspects.values() if s.too_few is not None}

    def look_closer(self) -> None:
        """Read the target again for the wrong rows of the cells that differ."""
        sink = self._question.sink
        looks = self._suspects or (self._foreign.rows and not self._question.foreign_expected)
        if not looks or self._cells is None:
            return
        assert isinstance(sink, ReadableSink)
        foreign: list[tuple[FoundRow, int]] = []
        for rows in sink.read_back(self._asked()):
            if rows.writers == ():
                if not self._question.foreign_expected and len(foreign) < _MOST_LOOKED_FOR:
                    hashes = row_hashes(rows.rows)
                    shown = rows_at(rows, np.ones(len(hashes), bool))
                    shown += [FoundRow({}, rows.place)] * (len(hashes) - len(shown))
                    foreign += zip(shown, hashes.tolist(), strict=True)
                continue
            cell = self._cells.of(rows)
            if cell is not None and (suspect := self._suspects.get(cell)) is not None:
                suspect.look_at(rows, row_hashes(rows.rows))
        self._tell_foreign(foreign)

    def tell(self, known: Mapping[int, FoundRow]) -> None:
        """Make the findings. `known` are rows by their hash, found in other sinks."""
        uid = self._question.uid
        suspects = self._without_torn()
        foreign: list[FoundRow] = []
        for row, hash_ in self._strange:
            lost = next((s for s in suspects if replaces(row, hash_, s, known)), None)
            if lost is None:
                foreign.append(row)
                continue
            suspects.remove(lost)
            self.result.findings.append(replaced(uid, row, hash_, lost, known))
        findings = [one for s in suspects for one in s.findings(uid, known)]
        self.result.findings += exchanged(findings, suspects)
        if foreign:
            examples = [row for row in foreign if row.values][:MOST_EXAMPLES]
            self._find(Fault.FOREIGN, -1, len(foreign), "", examples)

    def _sorted(self, found: Mapping[Any, RowSums]) -> Cells | None:
        """Return the cells that the target's answers allow to tell apart."""
        question, result = self._question, self.result
        if question.epoch_column:
            result.comparison = Comparison.EPOCH
            all_judged = question.total is not None and not question.foreign_expected
            return CellsByEpoch(question.ledgered, all_judged=all_judged)
        if found and all(writers is not None for writers, _, _ in found):
            result.comparison = Comparison.TRANSACTION
            together = [writers for writers, _, _ in found if writers]
            return CellsByTransaction(question.ledgered, together)
        if not found and question.by_transaction and question.ledgered.committables:
            result.comparison = Comparison.TRANSACTION
            return CellsByTransaction(question.ledgered, [])
        if question.total is None:
            result.notes.append(question.why)
            return None
        result.comparison = Comparison.TOTAL
        result.notes.append(
            "the target does not tell which epoch a row is of: only the totals of all epochs are "
            "compared, and nobody else may write there; --epoch-column names a column that tells it"
        )
        return OneCell(question.total.sums)

    def _note_foreign(self) -> None:
        if self._foreign.rows and self._question.foreign_expected:
            self.result.notes.append(
                f"{self._foreign.rows} rows by transactions that the ledger does not have are left "
                f"out: {self._question.foreign_expected}"
            )

    def _tell_foreign(self, foreign: Sequence[tuple[FoundRow, int]]) -> None:
        """Tell copies of the job's rows among those of no known transaction; keep the others."""
        if not foreign:
            return
        copied = self._epochs_of({hash_ for _, hash_ in foreign})
        for row, hash_ in foreign:
            if hash_ not in copied:
                self._strange.append((row, hash_))
                continue
            cell = copied[hash_]
            self._find(Fault.DOUBLED, cell.epoch, 1, str(cell), [row], hash=f"{hash_:016x}")

    def _epochs_of(self, hashes: set[int]) -> dict[int, Cell]:
        """Return the cells of the job's own rows with these hashes."""
        sink, cells = self._question.sink, dict[int, Cell]()
        assert isinstance(sink, ReadableSink) and self._cells is not None
        wanted = np.array(sorted(hashes), np.uint64)
        for rows in sink.read_back(self._asked()):
            if rows.writers == ():
                continue
            cell = self._cells.of(rows)
            values = row_hashes(rows.rows)
            if cell is not None:
                for hash_ in values[np.isin(values, wanted)].tolist():
                    cells[hash_] = cell
        return cells

    def _without_torn(self) -> list[Suspect]:
        """Tell the epochs of which some cells are wholly absent and others are not; return the
        other suspects."""
        absent = {
            cell for cell, s in self._suspects.items() if s.expected.rows > 1 and not s.found.rows
        }
        assert self._cells is not None or not self._suspects
        expected = self._cells.expected if self._cells is not None else {}
        torn = set[Cell]()
        for epoch in sorted({cell.epoch for cell in absent}):
            of_epoch = [c for c, part in expected.items() if c.epoch == epoch and part.rows]
            gone = sorted(cell for cell in of_epoch if cell in absent)
            if len(gone) == len(of_epoch):
                continue
            torn |= set(gone)
            rows = sum(expected[cell].rows for cell in gone)
            self._find(Fault.TORN, epoch, rows, "; ".join(map(str, gone)))
        return [suspect for cell, suspect in self._suspects.items() if cell not in torn]

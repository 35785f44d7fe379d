"""The verdict on one sink: each fault in a cell is named, with its row where the sums tell it.

How: three epochs of two tasks are ledgered as tasks do it; a target in memory gives back the rows,
with a fault. Random faults are drawn by Hypothesis: whatever changes the rows is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.checkpoint.ledger import LedgerEntry, Total
from seamark.checkpoint.row_hash import NO_ROWS, row_hashes, sums
from seamark.checkpoint.sink_epoch import SinkEpoch, TaskLedger
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import SinkContext
from seamark.verify.audit.cells import Ledgered
from seamark.verify.audit.findings import Finding, SinkResult
from seamark.verify.audit.one_sink import Question, SinkAudit

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
PLACES = [(epoch, task, f"t/{p}") for epoch in range(3) for task in range(2) for p in range(2)]
ROWS = 20
Place = tuple[int, int, str]


def batch(numbers: list[int]) -> pa.RecordBatch:
    texts = pa.array([f"row {n}" for n in numbers], pa.string())
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), texts], schema=SCHEMA)


def written() -> dict[Place, list[int]]:
    return {at: list(range(ROWS * i, ROWS * (i + 1))) for i, at in enumerate(PLACES)}


@dataclass(frozen=True)
class Handle:
    """A committable."""

    handle: str


@dataclass
class Target:
    """Gives rows back by their transaction, one for each epoch and task."""

    rows: dict[Place, list[int]] = field(default_factory=written)
    foreign: list[int] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        return "rows in memory"

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        for (epoch, task, target), numbers in self.rows.items():
            for start in range(0, len(numbers), 7):
                some = batch(numbers[start : start + 7])
                at = np.arange(start, start + len(some))
                if asked.epoch_column:
                    yield FoundRows(some, None, epoch, "", "table", at)
                elif not asked.by_transaction:
                    yield FoundRows(some, None, None, "", "table", at)
                else:
                    name = self.names.get(f"{epoch}/{task}", f"{epoch}/{task}")
                    number = asked.committables.index(Handle(name))
                    yield FoundRows(some, (number,), None, target, target, at)
        if self.foreign:
            yield FoundRows(batch(self.foreign), (), None, "t/0", "t/0")


def ledgered() -> Ledgered:
    found = Ledgered()
    for epoch in range(3):
        tasks = tuple(
            TaskLedger(task, 1, {
                target: sums(row_hashes(batch(numbers)))
                for (e, t, target), numbers in written().items() if (e, t) == (epoch, task)
            })
            for task in range(2)
        )  # fmt: skip
        part = SinkEpoch(4 * ROWS, (b"", b""), tasks)
        names = [Handle(f"{epoch}/{task}") for task in range(2)]
        found.add(LedgerEntry(epoch, 1, None, {"out": part}), "out", names, judged=True)
    return found


def audited(target: Target, whole: Ledgered | None = None, **more: Any) -> SinkResult:
    whole = whole or ledgered()
    total = Total(0, sum(whole.epochs.values(), NO_ROWS))
    context = SinkContext("j", "job", "out", 1, 1.0)
    question = Question("out", target, context, SCHEMA, whole, total, **more)  # type: ignore[arg-type]
    audit = SinkAudit(question)
    audit.run()
    audit.look_closer()
    audit.tell({})
    return audit.result


def told(found: list[Finding]) -> list[tuple[str, str, list[int]]]:
    return sorted((f.fault.value, f.place, [row.values["n"] for row in f.examples]) for f in found)


A, B = PLACES[0], PLACES[6]
AT_A, AT_B = "epoch 0, task 0, t/0", "epoch 1, task 1, t/0"


def test_nothing_is_wrong() -> None:
    result = audited(Target())
    assert (result.expected_rows, result.found_rows, result.findings) == (240, 240, [])


def test_a_lost_row() -> None:
    target = Target()
    target.rows[A].remove(3)
    (finding,) = audited(target).findings
    assert (finding.fault.value, finding.place, finding.rows) == ("missing", AT_A, 1)
    assert finding.hash == f"{int(row_hashes(batch([3]))[0]):016x}"


def test_a_doubled_row() -> None:
    target = Target()
    target.rows[A].append(3)
    assert told(audited(target).findings) == [("doubled", AT_A, [3])]


def test_a_foreign_row_in_the_jobs_transaction() -> None:
    target = Target()
    target.rows[A].append(-3)
    assert told(audited(target).findings) == [("foreign", AT_A, [-3])]


def test_a_changed_row() -> None:
    target = Target()
    target.rows[A][5] = -5
    assert told(audited(target).findings) == [("changed", AT_A, [-5])]


def test_a_row_in_another_cell() -> None:
    target = Target()
    target.rows[A].remove(3)
    target.rows[B].append(3)
    (finding,) = audited(target).findings
    assert (finding.fault.value, finding.place, finding.to) == ("moved", AT_A, AT_B)


def test_two_rows_in_each_others_cells() -> None:
    target = Target()
    target.rows[A][3], target.rows[B][4] = target.rows[B][4], target.rows[A][3]
    (finding,) = audited(target).findings
    assert (finding.fault.value, finding.place, finding.to) == ("swapped", AT_A, AT_B)


def test_rows_of_others_and_copies_by_others() -> None:
    target = Target(foreign=[-1, 3])
    assert told(audited(target).findings) == [("doubled", AT_A, [3]), ("foreign", "", [-1])]
    result = audited(target, foreign_expected="the job was restored")
    assert not result.findings
    assert "2 rows" in result.notes[0]


def test_a_torn_epoch_and_a_missing_one() -> None:
    target = Target()
    target.rows[A] = []
    (torn,) = audited(target).findings
    assert (torn.fault.value, torn.epoch, torn.rows, torn.place) == ("torn", 0, ROWS, AT_A)
    for at in PLACES[:4]:
        target.rows[at] = []
    assert [f.fault.value for f in audited(target).findings] == ["missing"] * 4


def test_several_faults_in_a_cell_are_counted() -> None:
    target = Target()
    target.rows[A] = [*range(2, ROWS)]
    target.rows[B][0] = target.rows[B][1] = -1
    found = audited(target).findings
    assert {(f.fault.value, f.place, f.rows) for f in found} == {
        ("missing", AT_A, 2), ("different", AT_B, ROWS),
    }  # fmt: skip


def test_a_transaction_written_again_stands_for_the_lost_one() -> None:
    """It may have put rows without a key into other partitions."""
    target = Target()
    whole = ledgered()
    entry = LedgerEntry(9, 1, None, {"out": SinkEpoch(20, (b"",), (TaskLedger(
        0, 1, {"t/0": sums(row_hashes(batch([*range(900, 920)])))}),))})  # fmt: skip
    whole.add(entry, "out", [Handle("9/0")], [("9/0", Handle("9/0 again"))], judged=True)
    target.rows[9, 0, "t/1"] = list(range(900, 920))
    target.names = {"9/0": "9/0 again"}
    assert not audited(target, whole).findings
    target.rows[9, 0, "t/1"].pop()
    assert [f.fault.value for f in audited(target, whole).findings] == ["missing"]


def test_by_an_epoch_column() -> None:
    target = Target()
    target.rows[A].remove(3)
    target.rows[B].append(7)
    target.rows[7, 0, ""] = [-9]
    result = audited(target, epoch_column="epoch")
    assert result.comparison.value == "by epoch"
    assert {(f.fault.value, f.place) for f in result.findings} >= {("missing", "epoch 0")}
    assert not audited(Target(), epoch_column="epoch").findings


def test_in_total() -> None:
    target = Target()
    assert not audited(target, by_transaction=False).findings
    target.rows[A][5] = -5
    result = audited(target, by_transaction=False)
    assert told(result.findings) == [("changed", "all epochs", [-5])]
    assert "totals" in result.notes[0]


changes = st.lists(
    st.tuples(st.sampled_from(PLACES), st.integers(0, ROWS - 1), st.integers(-5, 260)), max_size=6
)


@settings(deadline=None)
@given(changes)
def test_any_other_content_is_found(drawn: list[tuple[Place, int, int]]) -> None:
    """Rows are replaced at random, sometimes by themselves or by each other."""
    target = Target()
    for at, index, number in drawn:
        target.rows[at][index] = number
    as_written = all(Counter(target.rows[at]) == Counter(rows) for at, rows in written().items())
    assert bool(audited(target).findings) != as_written

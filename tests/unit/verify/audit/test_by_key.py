"""The verdict on an upserted table: each wrong key is named, and no right one.

How: tasks' tallies note random changes of a few keys in a few epochs; a dict is the table that they
make. Faults are planted in the dict by hand, and by Hypothesis: whatever changes it is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.checkpoint import sink_epoch, task_reports
from seamark.checkpoint.ledger import LedgerEntry
from seamark.checkpoint.row_hash import row_hashes
from seamark.checkpoint.sink_epoch import SinkEpoch, Tally
from seamark.checkpoint.task_reports import SinkReport, TaskReport, sink_epochs
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import SinkContext
from seamark.model.records import read_as, record_of
from seamark.verify.audit.by_key import KeyAudit, LastWrites
from seamark.verify.audit.cells import Ledgered
from seamark.verify.audit.findings import SinkResult
from seamark.verify.audit.one_sink import Question

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("op", pa.string())])
Change = tuple[int, str]
"""A key and its new value, "" for a delete."""
Epoch = Sequence[Sequence[Change]]
"""The changes of each task."""


@dataclass
class Table:
    """A sink that upserts into a list of rows."""

    rows: list[tuple[int, str]] = field(default_factory=list)
    keys: tuple[str, ...] = ("k",)
    op: str | None = "op"

    def describe(self) -> str:
        return "a table in memory"

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        assert not asked.by_transaction and not asked.epoch_column
        for start in range(0, len(self.rows), 3):
            some = self.rows[start : start + 3]
            columns = [pa.array([k for k, _ in some], pa.int64()), pa.array([v for _, v in some])]
            rows = pa.RecordBatch.from_arrays(columns, schema=asked.schema)
            yield FoundRows(rows, place="the table")


def entry(number: int, epoch: Epoch) -> LedgerEntry:
    """Return the ledger of an epoch, counted as its tasks do."""
    reports = []
    for task, changes in enumerate(epoch):
        tally = Tally(None, Table(), task)
        for k, v in changes:
            row = {"k": k, "v": v or None, "op": "update" if v else "delete"}
            tally.add(pa.RecordBatch.from_pylist([row], SCHEMA))
        part = SinkReport(len(changes), (b"",), targets=tally.close(), keys=tally.keys())
        reports.append(TaskReport(task, 0, 0, 0, {"out": part} if changes else {}))
    sinks = {uid: read_as(SinkEpoch, record_of(part)) for uid, part in sink_epochs(reports).items()}
    return LedgerEntry(number, 1, None, sinks)


def table(epochs: Sequence[Epoch]) -> list[tuple[int, str]]:
    """Return the rows that the epochs leave; of several tasks the last one wins."""
    rows: dict[int, str] = {}
    for epoch in epochs:
        for changes in epoch:
            rows |= dict(changes)
    return [(k, v) for k, v in rows.items() if v]


def audited(
    epochs: Sequence[Epoch], rows: list[tuple[int, str]], *, undecided: Sequence[Epoch] = (),
    asked: tuple[int, int] = (0, 99), incomplete: str = "", **more: Any,
) -> SinkResult:  # fmt: skip
    entries = [entry(number, epoch) for number, epoch in enumerate(epochs)]
    open_ = [entry(len(epochs) + number, epoch) for number, epoch in enumerate(undecided)]
    context = SinkContext("j", "job", "out", 1, 1.0)
    question = Question("out", Table(rows), context, SCHEMA, Ledgered(), None, **more)  # type: ignore[arg-type]
    audit = KeyAudit(question, LastWrites("out", entries, open_, asked), incomplete)
    audit.run()
    audit.look_closer()
    audit.tell({})
    return audit.result


def told(result: SinkResult) -> list[tuple[str, int, int, list[int]]]:
    return [(f.fault.value, f.epoch, f.rows, [row.values["k"] for row in f.examples])
            for f in result.findings]  # fmt: skip


EPOCHS: list[Epoch] = [
    [[(1, "a"), (2, "b"), (3, "c"), (1, "a2")], [(10, "x")]],
    [[(2, "b1"), (4, "d")], [(10, ""), (11, "y")]],
    [[(3, ""), (5, "e")]],
]


def test_nothing_is_wrong() -> None:
    result = audited(EPOCHS, table(EPOCHS))
    assert (result.findings, result.notes, result.comparison.value) == ([], [], "by key")
    assert (result.expected_rows, result.found_rows) == (5, 5)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1, "a2"), (4, "d"), (5, "e"), (11, "y")], ("missing", 1, 1, [])),
        ([(1, "a2"), (2, "b"), (4, "d"), (5, "e"), (11, "y")], ("outdated", 1, 1, [2])),
        ([(1, "a2"), (2, "?"), (4, "d"), (5, "e"), (11, "y")], ("changed", 1, 1, [2])),
        ([*table(EPOCHS), (3, "c")], ("outdated", 2, 1, [3])),
        ([*table(EPOCHS), (4, "d")], ("doubled", 1, 1, [])),
        ([*table(EPOCHS), (6, "f")], ("foreign", -1, 1, [6])),
    ],
    ids=["lost", "an update lost", "changed", "a delete lost", "doubled", "foreign"],
)
def test_one_fault(rows: list[tuple[int, str]], expected: Any) -> None:
    result = audited(EPOCHS, rows)
    assert told(result) == [expected]
    if expected[0] == "missing":
        row = pa.record_batch({"k": [2], "v": ["b1"]})
        assert result.findings[0].hash == f"{int(row_hashes(row)[0]):016x}"
        assert result.findings[0].place == "epoch 1, task 0"


def test_an_open_epoch_without_keys_may_have_written_each_key() -> None:
    """Its last task has more rows than its share of the ledger."""
    changes = [(1, f"v{n}") for n in range(5100)] + [(9, "new")]
    many: Epoch = [*([[]] * 199), changes]
    for rows in (table(EPOCHS), table([*EPOCHS, many])):
        result = audited(EPOCHS, rows, undecided=[many])
        assert result.findings == []
        assert any("not decided has no keys" in note for note in result.notes)
    assert told(audited(EPOCHS, table([*EPOCHS, many]))) != []


def test_any_task_of_an_epoch_may_have_won() -> None:
    epochs = [[[(1, "a")], [(1, "b")], [(2, "")], [(2, "c")]]]
    for one in "ab":
        assert audited(epochs, [(1, one)]).findings == []
        assert audited(epochs, [(1, one), (2, "c")]).findings == []
    assert told(audited(epochs, [(1, "c")])) == [("changed", 0, 1, [1])]


def test_only_the_epochs_asked_for_are_judged() -> None:
    rows = [(1, "?"), (2, "?"), (4, "d"), (5, "?"), (11, "y")]
    assert told(audited(EPOCHS, rows, asked=(1, 1))) == [("changed", 1, 1, [2])]


def test_keys_of_epochs_about_to_be_committed_are_not_judged() -> None:
    later = [[[(2, "b9"), (7, "new")]]]
    for rows in (table(EPOCHS), table([*EPOCHS, *later])):
        assert audited(EPOCHS, rows, undecided=later).findings == []
    assert told(audited(EPOCHS, [*table(EPOCHS), (8, "?")], undecided=later))[0][0] == "foreign"


def test_unknown_keys_may_be_the_jobs_own() -> None:
    result = audited(EPOCHS, [*table(EPOCHS), (6, "f")], incomplete="the job was restored")
    assert result.findings == []
    assert result.notes == [
        "1 rows of keys that the ledger does not have are left out: the job was restored"
    ]


def test_an_epoch_with_too_many_rows_ends_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sink_epoch, task_reports):
        monkeypatch.setattr(module, "MOST_KEYED_ROWS", 4)
    result = audited(EPOCHS, [(1, "a2"), (5, "?"), (11, "?")])  # epoch 0 has five rows in two tasks
    assert told(result) == [
        ("changed", 1, 1, [11]), ("missing", 1, 2, []), ("changed", 2, 1, [5]),
    ]  # fmt: skip
    assert [note[:40] for note in result.notes] == [
        "of epochs before 1 the ledger has no key", "1 rows of keys that the ledger does not ",
    ]  # fmt: skip


def test_other_modes_are_not_compared() -> None:
    result = audited(EPOCHS, [], by_transaction=False)
    assert (result.comparison.value, result.findings) == ("not compared", [])
    assert "never decided" in result.notes[0]


changes = st.tuples(st.integers(0, 6), st.sampled_from(["", "a", "b", "c", "d"]))
tasks_of_own_keys = st.lists(changes, max_size=8).map(
    lambda all_: [[c for c in all_ if c[0] % 2 == task] for task in range(2)]
)


@settings(deadline=None)
@given(st.lists(tasks_of_own_keys, max_size=5), st.data())
def test_whatever_changes_the_table_is_found(epochs: list[Epoch], data: st.DataObject) -> None:
    right = table(epochs)
    assert audited(epochs, right).findings == []
    rows = st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", "c", "d", "e"]))
    found = data.draw(st.lists(rows, unique_by=lambda row: row[0], max_size=8))
    findings = audited(epochs, found).findings
    wrong = {k for k, _ in {*found} ^ {*right}}
    assert sum(one.rows for one in findings) == len(wrong)
    shown = {row.values["k"] for one in findings for row in one.examples}
    assert shown == wrong & {k for k, _ in found}

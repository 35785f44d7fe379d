"""How: a stand-in for the system's call; it refuses a range with a bad row in it, and counts."""

from __future__ import annotations

import math
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.contracts.dead_letters import Refusals, RefusedRow, without
from seamark.sinks.internal.sifting import sift

NAMED = re.compile(r"line (-?\d+)")


class System:
    """Refuses as COPY does: with the number of the first bad line, plus `error`."""

    def __init__(self, bad: set[int], error: int = 0) -> None:
        self.bad = bad
        self.error = error
        self.taken: list[int] = []
        self.calls = 0

    def take(self, start: int, end: int) -> str:
        self.calls += 1
        if found := self.bad & set(range(start, end)):
            return (
                f"row {min(found)} is bad: line 1, no: line {min(found) - start + 1 + self.error}"
            )
        self.taken += range(start, end)
        return ""


@given(
    st.integers(0, 300),
    st.sets(st.integers(0, 299)),
    st.none() | st.integers(-3, 3),
)
def test_all_good_rows_are_taken_in_order_and_exactly_the_bad_ones_named(
    rows: int, bad: set[int], error: int | None
) -> None:
    """With a hint or without, and with a wrong one."""
    system = System({b for b in bad if b < rows}, error or 0)
    refused = sift(rows, system.take, names_row=None if error is None else NAMED)
    assert [row.index for row in refused] == sorted(system.bad)
    assert all(f"row {row.index} is bad" in row.reason for row in refused)
    assert system.taken == [row for row in range(rows) if row not in system.bad]


ROWS = 10_000
LOG = math.log2(ROWS)


@pytest.mark.parametrize("hint", [None, NAMED])
@pytest.mark.parametrize(
    ("bad", "with_hint", "without"),
    [
        (set(), 1, 1),
        ({7_777}, 5, LOG + 4),
        ({0}, 4 + LOG, 2 * LOG + 4),
        (set(range(5, ROWS, 10)), 3.2 * 1_000, 8 * 1_000),
        (set(range(ROWS)), ROWS + 2, ROWS + LOG + 2),
    ],
)
def test_calls_cost_round_trips(
    bad: set[int], with_hint: float, without: float, hint: re.Pattern[str] | None
) -> None:
    system = System(bad)
    sift(ROWS, system.take, names_row=hint)
    assert system.calls <= (with_hint if hint else without)


def test_without() -> None:
    batch = pa.record_batch({"id": [0, 1, 2, 3]})
    assert without(batch, []) is batch
    left = without(batch, [RefusedRow(0, ""), RefusedRow(2, "")])
    assert left.to_pydict() == {"id": [1, 3]}


def test_the_first_reason_of_a_row_counts() -> None:
    refused = Refusals([RefusedRow(2, "known")]).add([False, True, True], lambda row: f"row {row}")
    refused.add([True, True, False], "later")
    found = [(row.index, row.reason) for row in refused.rows()]
    assert found == [(0, "later"), (1, "row 1"), (2, "known")]

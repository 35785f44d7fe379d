"""Parts of Arrow batches: every row once, in order, none above the bound but single rows.

Nulls among their values."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seamark
from seamark.contracts.record_batches import PART_BYTES, in_parts, null_where


@settings(deadline=None)
@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(0, 10))
def test_parts_are_bounded_in_bytes(lengths: list[int], skipped: int) -> None:
    texts = pa.array(["x" * length for length in lengths], pa.string())
    batch = pa.record_batch({"n": pa.array(range(len(lengths)), pa.int64()), "text": texts})
    batch = batch.slice(skipped)
    parts = list(in_parts(batch, 4000))
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([batch]))
    assert all(part.nbytes <= 4000 or part.num_rows == 1 for part in parts)


@pytest.mark.parametrize("rows", [0, 1, 10_000])
def test_a_small_batch_stays_whole(rows: int) -> None:
    batch = pa.record_batch({"text": ["x" * 1000] * rows})
    assert batch.nbytes < PART_BYTES
    assert list(in_parts(batch)) == [batch]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.int64()])
def test_values_of_a_slice_stay_where_others_become_null(kind: pa.DataType) -> None:
    values = pa.array(["1", "22", None, "4444", "5", "66"], pa.string()).cast(kind)
    mask = pa.array([False, True, False, False, True])
    found = null_where(mask, values.slice(1))
    found.validate(full=True)
    assert found.cast(pa.string()).to_pylist() == ["22", None, "4444", "5", None]


def test_nothing_else_makes_null_by_a_scalar() -> None:
    """It would alter texts under pyarrow before 24, which these tests do not run on."""
    for file in Path(seamark.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("if_else"):
                for value in map(ast.unparse, call.args[1:]):
                    is_null = re.match(r"None\b|pa\.scalar\(None\b|pa\.nulls\(1,", value)
                    assert not is_null, f"{file}: {ast.unparse(call)}; use null_where"

"""Parts of Arrow batches: every row once, in order, none above the bound but single rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seamark.contracts.record_batches import PART_BYTES, in_parts


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

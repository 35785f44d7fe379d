"""Rows of a table that may have a column with each row's epoch."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.contracts.read_back import FoundRows


def by_epoch(
    rows: pa.RecordBatch,
    epochs: pa.Array | None,
    place: str,
    positions: Any | None = None,
) -> Iterator[FoundRows]:
    """Yield the rows of each epoch; all of them, of no known epoch, without `epochs`."""
    if epochs is None:
        yield FoundRows(rows, place=place, positions=positions)
        return
    for epoch, chosen in grouped(epochs.fill_null(-1).to_numpy(zero_copy_only=False)):
        at = None if positions is None else positions[chosen]
        yield FoundRows(rows.take(pa.array(chosen)), None, epoch, "", place, at)


def grouped(values: Any) -> Iterator[tuple[int, Any]]:
    """Yield each value once, with the places where it stands."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(ordered[start]), order[start:end]

"""Rows read back for an audit: from a table that may have a column with each row's epoch, or from
data files whose paths tell the transaction that wrote them, until somebody compacts the table."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError, UserError
from seamark.sinks.internal.columns import as_written
from seamark.sinks.internal.table_committable import TableCommittable

_MOST_ROWS = 16_384
_MOST_BYTES = 32 << 20


@contextlib.contextmanager
def reading(
    name: str,
    errors: type[Exception] | tuple[type[Exception], ...],
    said: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Make UserError of a value that does not come back, OperationFailedError of the target's
    errors."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise UserError(
            f"{name}: a value does not come back as it was written ({error}); such a table cannot "
            "be compared"
        ) from error
    except errors as error:
        raise OperationFailedError(f"{name} cannot be read: {said(error)}") from error


def some_at_a_time(fetchmany: Callable[[int], Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield a cursor's rows, at most some MB of them together if they are alike."""
    count = 8
    while rows := fetchmany(count):
        yield rows
        size = sum(len(value) for value in rows[-1] if isinstance(value, str | bytes))
        count = max(1, min(2 * count, _MOST_ROWS, _MOST_BYTES // (size + 1)))


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


def found_rows(
    asked: ReadBack, paths: Iterable[str], batches: Callable[[str], Iterable[pa.RecordBatch]]
) -> Iterator[FoundRows]:
    """Yield the rows of each data file, as `batches` reads it by its path below the table; without
    their writers if files of the job's are gone and others are there."""
    committables: list[TableCommittable] = list(asked.committables)
    writers = {
        path: (n,) for n, committable in enumerate(committables) for path in committable.sizes
    }
    there = list(paths)
    told = asked.by_transaction and not ({*writers} - {*there} and {*there} - {*writers})
    for path in there:
        start = 0
        for batch in batches(path):
            rows = as_written(batch, asked.schema)
            positions = np.arange(start, start + rows.num_rows)
            start += rows.num_rows
            writer = writers.get(path, ()) if told else None
            yield FoundRows(rows, writer, place=f"file {path}", positions=positions)

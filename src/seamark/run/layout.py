"""Which columns of the united stream are whose; `branches.py` makes the stream."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Layout:
    """Maps the columns of the united stream to the sinks.

    The struct column of sink number n is ``s<n>``. A lone sink's own columns travel as ``c0``,
    ``c1``, …, since `mapInArrow` resolves names anew and stumbles over dots and backticks;
    `columns` are the sink's names for them. `types`: of the stream's columns, as text.
    """

    uids: tuple[str, ...]
    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the stream consists of a lone sink's own columns."""
        return len(self.uids) == 1

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield (sink uid, its rows with its own columns) for one Arrow batch of the stream."""
        if self.plain:
            yield self.uids[0], batch.rename_columns(list(self.columns))
            return
        for uid, rows in zip(self.uids, batch.columns, strict=True):
            if rows.null_count:
                rows = rows.filter(rows.is_valid())
            if len(rows):
                yield uid, pa.RecordBatch.from_struct_array(rows)

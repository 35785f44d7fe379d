"""Arrow batches into the Parquet files of one attempt: one for each set of partition values.

Rows are sorted by their partition and cut where it changes, by Arrow's own calls: no Python object
is made per row. Partition columns are not in the files; their values are in the log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seamark.file_systems import Directory, NewFile
from seamark.sinks.delta import store
from seamark.sinks.delta.committable import DataFile
from seamark.sinks.delta.statistics import statistics

ROW_GROUP_BYTES = 64 << 20
"""Rows are gathered up to this size over all open files: Spark's batches are of 10,000 rows, far
too few for a row group that is good to read."""
_NULL = "__HIVE_DEFAULT_PARTITION__"

Values = tuple[str | None, ...]
"""What the partition columns hold, as the log's texts."""


@dataclass
class _Open:
    path: str
    file: NewFile
    writer: Any
    metadata: list[Any]
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def flush(self) -> None:
        if self.batches:
            table = pa.Table.from_batches(self.batches)
            self.writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.batches = []


class DataFiles:
    """The files of one attempt.

    `name` makes the name of the nth file; `announce` is told new paths before they are made.
    """

    def __init__(
        self,
        files: Directory,
        partition_by: Sequence[str],
        name: Callable[[int], str],
        announce: Callable[[Sequence[str]], None],
    ) -> None:
        self._files = files
        self._partition_by = list(partition_by)
        self._name = name
        self._announce = announce
        self._open: dict[Values, _Open] = {}
        self._bytes = 0

    @property
    def paths(self) -> list[str]:
        """The files made so far."""
        return [file.path for file in self._open.values()]

    def write(self, batch: pa.RecordBatch) -> None:
        """Take one batch, whose buffers are valid only until the call returns."""
        parts = list(split(batch, self._partition_by))
        new = [values for values, _ in parts if values not in self._open]
        if new:
            paths = {v: self._path(v, len(self._open) + n) for n, v in enumerate(new)}
            self._announce(list(paths.values()))
            schema = parts[0][1].schema
            for values, path in paths.items():
                self._open[values] = self._create(path, schema)
        for values, part in parts:
            copy = pa.ipc.read_record_batch(part.serialize(), part.schema)
            self._open[values].batches.append(copy)
            self._bytes += copy.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            for file in self._open.values():
                file.flush()
            self._bytes = 0

    def close(self) -> list[DataFile]:
        """Write what is left, make every file durable and return them."""
        for file in self._open.values():
            file.flush()
            file.writer.close()
            file.file.close()
        now_ms = int(time.time() * 1000)
        return [
            DataFile(
                path=file.path,
                size_bytes=size or 0,
                partition_values=dict(zip(self._partition_by, values, strict=True)),
                statistics=statistics(file.metadata[0]),
                modified_ms=now_ms,
            )
            for (values, file), size in zip(
                self._open.items(), store.sizes(self._files, self.paths), strict=True
            )
        ]

    def discard(self) -> None:
        """Give up: no file stays, as far as that can be done. Never raises."""
        for file in self._open.values():
            with contextlib.suppress(Exception):
                file.writer.close()
            file.file.discard()

    def _create(self, path: str, schema: pa.Schema) -> _Open:
        file = self._files.create(path)
        metadata: list[Any] = []
        # Without Arrow's own schema, which would hold Spark's session time zone: readers see UTC.
        writer = pq.ParquetWriter(file, schema, store_schema=False, metadata_collector=metadata)
        return _Open(path, file, writer, metadata)

    def _path(self, values: Values, number: int) -> str:
        directories = [
            f"{quote(column, safe='')}={_NULL if value is None else quote(value, safe='')}"
            for column, value in zip(self._partition_by, values, strict=True)
        ]
        return "/".join([*directories, self._name(number)])


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Yield the rows of each set of partition values, without the partition columns."""
    if not columns:
        yield (), batch
        return
    texts = [_text(batch.column(column)) for column in columns]
    keys = pa.Table.from_arrays(texts, names=[str(i) for i in range(len(columns))])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    keys, rows = keys.take(order), batch.drop_columns(list(columns)).take(order)
    starts = _starts(keys)
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield tuple(key[start].as_py() for key in keys.columns), rows.slice(start, end - start)


def _text(column: pa.Array) -> pa.Array:
    """Return the values as the log has them, in which an empty text is null."""
    text = column.cast(pa.string())
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _starts(keys: pa.Table) -> list[int]:
    """Return where a new set of values begins, in sorted rows."""
    import numpy as np

    changed = np.zeros(keys.num_rows, bool)
    changed[:1] = True
    for key in keys.columns:
        codes = key.combine_chunks().dictionary_encode(null_encoding="encode")
        if isinstance(codes, pa.ChunkedArray):
            codes = codes.combine_chunks()
        changed[1:] |= np.diff(codes.indices.to_numpy(zero_copy_only=False)) != 0
    return [int(start) for start in np.flatnonzero(changed)]

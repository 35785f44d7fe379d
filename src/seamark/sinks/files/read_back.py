"""Reads a directory's files back for an audit. A file's name tells who has written it."""

import gzip
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.files.directory import RowDirectory
from seamark.sinks.files.formats import Format
from seamark.sinks.internal.columns import as_written
from seamark.sinks.internal.parquet import parquet_file
from seamark.sinks.internal.partitions import directory_values

_log = logging.getLogger(__name__)
_BLOCK_BYTES = 64 << 20
"""Arrow refuses a row of CSV that is longer."""


def read(directory: RowDirectory, format_: Format, asked: ReadBack) -> Iterator[FoundRows]:
    """Yield the rows of every file, those of other writers too.

    A file that cannot be read is named in the log, and its rows are not found.
    """
    writers = {file.handle: (number,) for number, file in enumerate(asked.committables)}
    for path in sorted(directory.tree()):
        if any(n[0] == "." or (n[0] == "_" and "=" not in n) for n in path.split("/")):
            continue  # as Spark's readers do
        try:
            with directory.open(path) as file:
                start = 0
                for rows in _rows(file, path, format_, asked.schema):
                    positions = np.arange(start, start + rows.num_rows)
                    start += rows.num_rows
                    writer = writers.get(path, ()) if asked.by_transaction else None
                    yield FoundRows(rows, writer, place=f"file {path}", positions=positions)
        except (pa.ArrowException, KeyError, OSError) as error:
            _log.warning("%s/%s cannot be read: %s", directory, path, error)


def _rows(file: Any, path: str, format_: Format, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    values = {c: v for c, v in directory_values(path).items() if c in schema.names}
    stored = pa.schema([field for field in schema if field.name not in values])
    for batch in _batches(file, path, format_, stored):
        rows = as_written(batch, stored)
        for column, value in values.items():
            rows = rows.append_column(column, pa.repeat(pa.scalar(value, pa.string()), len(rows)))
        yield rows


def _batches(file: Any, path: str, format_: Format, stored: pa.Schema) -> Iterator[pa.RecordBatch]:
    if format_.name == "parquet":
        yield from parquet_file(file.read()).iter_batches()
        return
    text = gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file
    if format_.name == "json":
        yield _lines(text.read(), stored.names[0])
        return
    times = {f.name: pa.string() for f in stored if pa.types.is_temporal(f.type)}
    yield from pa.csv.open_csv(
        text,
        pa.csv.ReadOptions(
            column_names=None if format_.header else stored.names, block_size=_BLOCK_BYTES
        ),
        pa.csv.ParseOptions(
            delimiter=format_.delimiter,
            double_quote=format_.escape == '"',
            escape_char=False if format_.escape == '"' else format_.escape,
            newlines_in_values=True,
        ),
        pa.csv.ConvertOptions(
            column_types={field.name: times.get(field.name, field.type) for field in stored},
            null_values=[format_.null_as_read],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["true"],
            false_values=["false"],
        ),
    )


def _lines(data: bytes, name: str) -> pa.RecordBatch:
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate((np.zeros(1, np.int64), ends))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    lines = pa.Array.from_buffers(pa.large_string(), len(ends), buffers)
    return pa.record_batch({name: pa.compute.utf8_slice_codeunits(lines, 0, -1)})

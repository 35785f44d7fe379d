"""Reads a Delta table back for an audit: the data files of its newest version.

A file's name tells the transaction that wrote it, until somebody compacts the table.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.file_systems import open_directory
from seamark.model.errors import OperationFailedError, UserError
from seamark.sinks.delta.preflight import load
from seamark.sinks.internal.columns import as_written

if TYPE_CHECKING:
    from seamark.sinks.delta.sink import DeltaSink

_NOT_READ = {"deletionVectors", "columnMapping"}
_PARTITION = "partition."


def read(sink: "DeltaSink", asked: ReadBack) -> Iterator[FoundRows]:
    """Yield the rows of every data file; without their writers if files of the job's are gone and
    others are there: somebody has compacted the table."""
    name = f"sink {asked.context.sink_uid!r}: {sink.describe()}"
    hadoop = asked.context.hadoop.under(sink.storage_options)
    try:
        table = load(sink, hadoop)
        if found := _NOT_READ & {*(table.protocol().reader_features or ())}:
            raise UserError(f"{name}: the table uses {min(found)}, which an audit does not read")
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        writers = {
            file.path: (number,)
            for number, committable in enumerate(asked.committables)
            for file in committable.data_files
        }
        paths = {unquote(action["path"]) for action in actions}
        told = asked.by_transaction and not ({*writers} - paths and paths - {*writers})
        directory = open_directory(sink.path, hadoop)
        for action in actions:
            path = unquote(action["path"])
            start = 0
            with directory.open(path) as file:
                for batch in pa.parquet.ParquetFile(pa.BufferReader(file.read())).iter_batches():
                    rows = as_written(_whole(batch, action, asked.schema), asked.schema)
                    positions = np.arange(start, start + rows.num_rows)
                    start += rows.num_rows
                    writer = writers.get(path, ()) if told else None
                    yield FoundRows(rows, writer, place=f"file {path}", positions=positions)
    except (OSError, pa.ArrowException) as error:
        raise OperationFailedError(f"{name} cannot be read: {error}") from error


def _whole(batch: pa.RecordBatch, action: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the file's rows with the partition columns, which the log has."""
    for field in schema:
        if field.name not in batch.schema.names:
            value = pa.scalar(action.get(_PARTITION + field.name), field.type)
            batch = batch.append_column(field.name, pa.repeat(value, len(batch)))
    return batch

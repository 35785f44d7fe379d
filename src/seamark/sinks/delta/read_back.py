"""Reads a Delta table back for an audit: the data files of its newest version."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.files import open_directory
from seamark.model.errors import OperationFailedError, UserError
from seamark.sinks.delta.preflight import load
from seamark.sinks.internal.parquet import parquet_file
from seamark.sinks.internal.read_back import found_rows

if TYPE_CHECKING:
    from seamark.sinks.delta.sink import DeltaSink

_NOT_READ = {"deletionVectors", "columnMapping"}
_PARTITION = "partition."


def read(sink: "DeltaSink", asked: ReadBack) -> Iterator[FoundRows]:
    """See `ReadableSink`: the rows of the table's newest version, as `found_rows` yields them."""
    name = f"sink {asked.context.sink_uid!r}: {sink.describe()}"
    hadoop = asked.context.hadoop.under(sink.storage_options)
    try:
        table = load(sink, hadoop)
        if features := _NOT_READ & {*(table.protocol().reader_features or ())}:
            raise UserError(f"{name}: the table uses {min(features)}, which an audit does not read")
        actions = {
            unquote(action["path"]): action
            for action in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        }
        directory = open_directory(sink.path, hadoop)

        def batches(path: str) -> Iterator[pa.RecordBatch]:
            with directory.open(path) as file:
                for batch in parquet_file(file.read()).iter_batches():
                    yield _whole(batch, actions[path], asked.schema)

        yield from found_rows(asked, actions, batches)
    except (OSError, pa.ArrowException) as error:
        raise OperationFailedError(f"{name} cannot be read: {error}") from error


def _whole(batch: pa.RecordBatch, action: dict[str, Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return the file's rows with the partition columns, which the log has."""
    for field in schema:
        if field.name not in batch.schema.names:
            value = pa.scalar(action.get(_PARTITION + field.name), field.type)
            batch = batch.append_column(field.name, pa.repeat(value, len(batch)))
    return batch

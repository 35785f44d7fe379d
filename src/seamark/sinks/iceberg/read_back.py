"""Reads an Iceberg table back for an audit: the data files of its current snapshot."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.model.errors import OperationFailedError
from seamark.sinks.iceberg.catalog import READ_S
from seamark.sinks.iceberg.rows import read_rows
from seamark.sinks.internal.read_back import found_rows

if TYPE_CHECKING:
    from seamark.sinks.iceberg.sink import IcebergSink


def read(sink: "IcebergSink", asked: ReadBack) -> Iterator[FoundRows]:
    """See `ReadableSink`: the rows of the table's current snapshot, as `found_rows` yields them."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    name = f"sink {asked.context.sink_uid!r}: {sink.describe()}"
    try:
        catalog = sink.catalog_table(asked.context.hadoop)
        table = catalog.load()
        tasks = catalog.call(lambda: list(table.scan().plan_files()), READ_S)
        schema = table.schema().select(*asked.schema.names)
        scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
        below = f"{table.location().rstrip('/')}/"
        files = {task.file.file_path.removeprefix(below): task for task in tasks}

        def batches(path: str) -> Iterator[pa.RecordBatch]:
            if files[path].delete_files:
                yield from scan.to_record_batches([files[path]])
            else:
                yield from read_rows(table, schema, files[path].file)

        yield from found_rows(asked, files, batches)
    except (OSError, pa.ArrowException) as error:
        raise OperationFailedError(f"{name} cannot be read: {error}") from error

"""Task side: writes durable data files, not yet named by any snapshot."""

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seamark.contracts.dead_letters import Refusals, RefusedRow
from seamark.contracts.sink import WriterContext
from seamark.files import RowDirectory
from seamark.model.errors import WriteRefusedError
from seamark.sinks.iceberg import partitions, types
from seamark.sinks.iceberg.catalog import METADATA
from seamark.sinks.iceberg.committable import FileFacts, IcebergCommittable, as_text, dump
from seamark.sinks.iceberg.statistics import statistics
from seamark.sinks.internal import changes, stored
from seamark.sinks.internal.changes import STAGED_OP
from seamark.sinks.internal.columns import not_utf8, of_arrow
from seamark.sinks.internal.data_files import DataFiles, WrittenFile
from seamark.sinks.internal.table_committable import STAGED, file_name
from seamark.sinks.internal.table_writer import TableWriter

if TYPE_CHECKING:
    from seamark.sinks.iceberg.sink import IcebergSink

DATA = "data"
NO_PARTITION = (
    "a text of a partition column is not UTF-8, a time is too far for its hours, or a number is "
    "too low to be truncated"
)
NO_KEY = "a text of its key is not UTF-8"
OP_ID = 2_147_483_000
"""The field id of `STAGED_OP` in a file of rows to be merged; the table has no such column."""
_CODECS = {"uncompressed": "none"}


class IcebergWriter(TableWriter[IcebergCommittable]):
    """See `TableWriter`. All files lie in one directory: manifests have their partitions. Rows to
    be merged stay in their order, in one file."""

    def __init__(self, sink: "IcebergSink", context: WriterContext) -> None:
        super().__init__(context, sink.describe())
        self._table = sink.catalog_table(context.hadoop)
        self._keys = sink.keys
        self._op = sink.op
        self._target_bytes = int(sink.target_file_size or 0)
        self._metadata: Any = None
        self._arrow: Any = None

    def as_found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """See `AccountableWriter`: rows are found as they were written."""
        return batch

    def _begin(self) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        table = self._table.load()
        self._metadata = metadata = table.metadata
        self._log_version = metadata.last_sequence_number
        files: RowDirectory = table.io.directory(metadata.location)
        if not stored.is_mounted(files, METADATA):
            raise WriteRefusedError(
                f"{self._target}: {files}, where the catalog has it, does not exist on "
                f"{socket.gethostname()}; give the table a location on a file system that the "
                "driver and all executors share"
            )
        schema, spec = metadata.schema(), metadata.spec()
        self._arrow = schema_to_pyarrow(schema)
        self._files = files
        directory = STAGED if self._keys else DATA
        self._data = DataFiles(
            files,
            whole if self._keys else partitions.splitter(spec, schema),
            lambda _, number: f"{directory}/{file_name(self._handle, number)}",
            self._announce,
            codec(metadata),
            self._target_bytes,
        )

    def _take(self, batch: pa.RecordBatch) -> None:
        super()._take(self._cast(batch) if batch.num_rows else batch)

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows in the table's types, with its fields' ids. Texts stay as they are: in a
        file they are no larger than pyiceberg's large ones."""
        fields = [self._field(name) for name in batch.schema.names]
        fields = [
            f.with_type(c.type) if c.type in (pa.string(), pa.binary()) else f
            for c, f in zip(batch.columns, fields, strict=True)
        ]
        columns = [c.cast(f.type) for c, f in zip(batch.columns, fields, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _field(self, name: str) -> pa.Field:
        if name == self._op:
            number = str(OP_ID).encode()
            return pa.field(STAGED_OP, pa.string(), metadata={b"PARQUET:field_id": number})
        return self._arrow.field(name)

    def _unfit(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        if batch.num_rows == 0:
            return []
        if self._data is None:
            self._begin()
            self._require_columns(batch)
        bad = partitions.unfit(self._metadata.spec(), self._metadata.schema(), batch)
        refused = Refusals(changes.unfit(batch, self._keys, self._op) if self._keys else [])
        for key in self._keys:
            refused.add(not_utf8(batch.column(key)), NO_KEY)
        return refused.add(bad, NO_PARTITION).rows()

    def _require_columns(self, batch: pa.RecordBatch) -> None:
        """Raise WriteRefusedError if the table was altered since the job's start and does not take
        these columns any more."""
        schema, spec = self._metadata.schema(), self._metadata.spec()
        sources = [schema.find_column_name(field.source_id) for field in spec.fields]
        given = {
            field.name: of_arrow(field.type) for field in batch.schema if field.name != self._op
        }
        there = {field.name: types.spark_type(field.field_type) for field in schema.fields}
        unfit = [f"has no column {name!r}" for name in given if name not in there]
        unfit += [
            f"has {there[name]} at {name!r}, which is {kind} in the DataFrame,"
            for name, kind in given.items()
            if name in there and not types.fits(kind, there[name])
        ]
        unfit += [
            f"is partitioned by {name!r}, which is not in the DataFrame"
            for name in sources
            if name not in given
        ]
        unfit += [f"has NOT NULL at {field.name!r}" for field in schema.fields if field.required]
        if unfit:
            raise WriteRefusedError(
                f"{self._target} was altered while the job ran: it {unfit[0]} now; alter it back, "
                "or start the job again with a DataFrame that fits it"
            )

    def _described(self, file: WrittenFile[partitions.Values]) -> str:
        from pyiceberg.conversions import to_bytes

        schema, spec = self._metadata.schema(), self._metadata.spec()
        if self._keys:
            names = {*file.metadata.schema.to_arrow_schema().names} - {STAGED_OP}
            ids = sorted(schema.find_field(name).field_id for name in names)
            columns = {str(number): (0, 0, None, None) for number in ids}
            op = STAGED_OP if self._op else ""
            rows = file.metadata.num_rows
            staged = FileFacts(file.path, file.size_bytes, rows, (), columns, self._keys, op)
            return dump(staged)
        fields = spec.partition_type(schema).fields
        values = [
            None if value is None else as_text(to_bytes(field.field_type, value))
            for field, value in zip(fields, file.values, strict=True)
        ]
        figures = statistics(file, schema)
        return dump(FileFacts(file.path, file.size_bytes, file.metadata.num_rows, values, figures))

    def _committable(self, files: tuple[str, ...] = ()) -> IcebergCommittable:
        metadata = self._metadata
        return IcebergCommittable(
            self._handle, self._log_version, self._records, self._rows, files,
            table_uuid=str(metadata.table_uuid), location=metadata.location,
            schema_id=metadata.current_schema_id, spec_id=metadata.default_spec_id,
        )  # fmt: skip


def whole(batch: pa.RecordBatch) -> Iterator[tuple[partitions.Values, pa.RecordBatch]]:
    """Yield all rows, for one file."""
    yield (), batch


def codec(metadata: Any) -> str:
    """Return the compression that a table asks for, by pyarrow's name."""
    name: str = metadata.properties.get("write.parquet.compression-codec", "zstd")
    return _CODECS.get(name, name)

"""Arrow batches into a Parquet file with large row groups, and what its footer tells."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

ROW_GROUP_BYTES = 64 << 20
"""Rows are gathered up to this size, over all open files of a task: Spark's batches of 10,000 rows
are far too small for an efficient row group."""


@dataclass
class FloatFacts:
    """What a file holds of a column of floating-point numbers; with NaN its bounds are infinite."""

    nulls: int = 0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: pa.Array) -> None:
        """Take a batch's values."""
        self.nulls += values.null_count
        if pc.any(pc.is_nan(values)).as_py():
            self.low, self.high = -math.inf, math.inf
        elif values.null_count < len(values):
            ends = pc.min_max(values).as_py()
            self.low, self.high = min(self.low, ends["min"]), max(self.high, ends["max"])


class ParquetEncoder:
    """Gathers batches up to `ROW_GROUP_BYTES`, or up to `target_bytes`, the file's wanted size; 0
    is none."""

    def __init__(
        self, file: Any, schema: pa.Schema, compression: str = "snappy", target_bytes: int = 0
    ) -> None:
        self._schema = schema
        self._row_group_bytes = min(ROW_GROUP_BYTES, target_bytes or ROW_GROUP_BYTES)
        self._encoded_bytes = 0
        self._metadata: list[Any] = []
        # Arrow's own schema would hold Spark's session time zone. Without it readers see UTC.
        self._writer = pa.parquet.ParquetWriter(
            file,
            schema,
            store_schema=False,
            compression=compression,
            # pyarrow's bounds leave out NaN, which Spark, DuckDB and delta-rs have above all
            # numbers: by them they would skip its rows.
            write_statistics=_ordered_columns(schema),
            metadata_collector=self._metadata,
        )
        self._batches: list[pa.RecordBatch] = []
        self.buffered_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Copy the batch; write a row group once enough rows are gathered."""
        self._batches.append(pa.ipc.read_record_batch(batch.serialize(), self._schema))
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes >= self._row_group_bytes:
            self.flush()

    def expected_bytes(self, written: int) -> int:
        """See `Encoder`. Takes the rows in memory to be encoded as well as those before them."""
        ratio = written / self._encoded_bytes if self._encoded_bytes else 1.0
        return written + round(self.buffered_bytes * ratio)

    def flush(self) -> None:
        """Write the gathered rows as a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._encoded_bytes += self.buffered_bytes
        self._batches, self.buffered_bytes = [], 0

    def close(self) -> None:
        """Write the last row group and the footer."""
        self.flush()
        self._writer.close()

    def drop(self) -> None:
        """Close the file without the gathered rows, which nobody needs: its task is cancelled."""
        self._batches, self.buffered_bytes = [], 0
        self._writer.close()

    @property
    def metadata(self) -> Any:
        """The file's `pyarrow.parquet.FileMetaData`, once it is closed."""
        return self._metadata[0]


def _ordered_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of all columns, those within others too, but of floating-point numbers."""
    output = pa.BufferOutputStream()
    pa.parquet.ParquetWriter(output, schema).close()
    columns = _leaves(pa.parquet.read_metadata(pa.BufferReader(output.getvalue())).schema)
    return [one.path for one in columns if one.physical_type not in ("FLOAT", "DOUBLE")]


def _leaves(schema: pa.parquet.ParquetSchema) -> Iterator[pa.parquet.ColumnSchema]:
    return map(schema.column, range(len(schema)))


def parquet_file(data: Any) -> pa.parquet.ParquetFile:
    """Return a whole file's bytes to be read. Times in INT96, Spark's default, are microseconds to
    it: as nanoseconds those before 1677 and after 2262 would be read as other times."""
    return pa.parquet.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")


def int96_columns(file: pa.parquet.ParquetFile) -> list[str]:
    """Return the paths of the columns with times in INT96."""
    return [column.path for column in _leaves(file.schema) if column.physical_type == "INT96"]


@dataclass(frozen=True)
class ColumnFacts:
    """What a footer tells of a column. `low`, `high`: its bounds, None if there are none, or none
    that Python can hold."""

    name: str
    nulls: int
    size_bytes: int
    low: Any = None
    high: Any = None


def flat_columns(file: Any, most: int) -> Iterator[ColumnFacts]:
    """Yield the facts of each column of a `WrittenFile` that is not nested, out of the first
    `most`."""
    metadata = file.metadata
    for position in range(min(metadata.num_columns, most)):
        chunks = [metadata.row_group(g).column(position) for g in range(metadata.num_row_groups)]
        name = metadata.schema.column(position).name
        if not chunks or chunks[0].path_in_schema != name or metadata.schema.names.count(name) > 1:
            continue  # nested
        size = sum(chunk.total_compressed_size for chunk in chunks)
        if name in file.floats:
            found = file.floats[name]
            # A zero of either sign is within: there are readers to whom -0.0 is the lesser one.
            ends = (
                (found.low or -0.0, found.high or 0.0)
                if math.isfinite(found.low) and math.isfinite(found.high)
                else (None, None)
            )
            yield ColumnFacts(name, found.nulls, size, *ends)
            continue
        facts_of_chunks = [chunk.statistics for chunk in chunks]
        if any(s is None or not s.has_null_count for s in facts_of_chunks):
            continue
        facts = name, sum(s.null_count for s in facts_of_chunks), size
        bounded = [s for s in facts_of_chunks if s.num_values]
        low = high = None
        if bounded and all(s.has_min_max for s in bounded):
            try:
                low, high = min(s.min for s in bounded), max(s.max for s in bounded)
            except (ValueError, OverflowError):  # a time outside Python's range, or no UTF-8
                low = high = None
        yield ColumnFacts(*facts, low, high)

"""Arrow batches into the bytes of each file format, without a Python object per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from tidemark.sinks.internal.columns import datetimes_as_text

ROW_GROUP_BYTES = 64 << 20


class Encoder(Protocol):
    """Writes batches of one schema into an open file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch, whose buffers are valid only until the call returns."""
        ...

    def close(self) -> None:
        """Write what is left; the file itself stays open."""
        ...


class ParquetEncoder:
    """Gathers batches up to `ROW_GROUP_BYTES`: Spark's are of 10,000 rows, far too few for a row
    group that is good to read."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._schema = schema
        # Without Arrow's own schema, which would hold Spark's session time zone: readers see UTC.
        self._writer = pa.parquet.ParquetWriter(file, schema, store_schema=False)
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Copy the batch, and write a row group when there is enough."""
        self._batches.append(pa.ipc.read_record_batch(batch.serialize(), self._schema))
        self._bytes += batch.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._batches, self._bytes = [], 0


class JsonEncoder:
    """Writes one text column, which holds whole JSON objects, as lines."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the column's data buffer, with line ends joined in by Arrow."""
        text = pa.large_string()  # 64-bit offsets: the joined text may pass 2 GiB
        lines = pc.binary_join_element_wise(
            batch.column(0).cast(text), pa.scalar("", text), pa.scalar("\n", text)
        )
        _, offsets, data = lines.buffers()
        bounds = memoryview(offsets).cast("q")
        start, end = bounds[lines.offset], bounds[lines.offset + len(lines)]
        self._file.write(memoryview(data)[start:end])

    def close(self) -> None:
        """Every line is written already."""


class CsvEncoder:
    """Writes a header line and RFC 4180 records."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._writer: pa.csv.CSVWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the records."""
        batch = datetimes_as_text(batch)
        if self._writer is None:
            self._writer = pa.csv.CSVWriter(self._file, batch.schema)
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Flush the last records."""
        if self._writer is not None:
            self._writer.close()


FORMATS: dict[str, Callable[[BinaryIO, pa.Schema], Encoder]] = {
    "parquet": ParquetEncoder,
    "json": JsonEncoder,
    "csv": CsvEncoder,
}
"""By format name, which is the files' extension too."""

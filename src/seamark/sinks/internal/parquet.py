"""Arrow batches into a Parquet file with large row groups."""

from typing import Any

import pyarrow as pa
import pyarrow.parquet

ROW_GROUP_BYTES = 64 << 20


class ParquetEncoder:
    """Gathers batches up to `ROW_GROUP_BYTES`: Spark's batches are too small for row groups."""

    def __init__(self, file: Any, schema: pa.Schema, compression: str = "snappy") -> None:
        self._schema = schema
        self._metadata: list[Any] = []
        # Arrow's own schema would hold Spark's session time zone. Without it readers see UTC.
        self._writer = pa.parquet.ParquetWriter(
            file,
            schema,
            store_schema=False,
            compression=compression,
            metadata_collector=self._metadata,
        )
        self._batches: list[pa.RecordBatch] = []
        self.buffered_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Copy the batch; write a row group once enough rows are gathered."""
        self._batches.append(pa.ipc.read_record_batch(batch.serialize(), self._schema))
        self.buffered_bytes += batch.nbytes
        if self.buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the gathered rows as a row group."""
        if self._batches:
            table = pa.Table.from_batches(self._batches, self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
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

"""The task's side: one durable buffer file per attempt. Failpoint: `buffer-written`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seamark.contracts.row_files import RowFileWriter
from seamark.contracts.sink import WriterContext
from seamark.model import failpoints
from seamark.sinks.write_ahead.committable import BufferedRows

if TYPE_CHECKING:
    import pyarrow as pa


class BufferWriter:
    """See `CommittingWriter`. Makes no file when no row comes."""

    def __init__(self, context: WriterContext) -> None:
        self._context = context
        self._file: RowFileWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the batch to the buffer. Raises OSError when the storage refuses it,
        WriteRefusedError on a machine that does not share it."""
        if batch.num_rows == 0:
            return
        if self._file is None:
            self._file = RowFileWriter.of_attempt(self._context, batch.schema)
        self._file.write(batch)

    def prepare_commit(self) -> Sequence[BufferedRows]:
        """Make the buffer durable."""
        if self._file is None:
            return []
        file, at = self._file.finish(), self._context
        failpoints.reached("buffer-written")
        return [
            BufferedRows(
                handle=file.path,
                directory=at.buffer_uri,
                job_id=at.job_id,
                sink_uid=at.sink_uid,
                generation=at.generation,
                epoch=at.epoch,
                rows=file.rows,
                size_bytes=file.size_bytes,
                crc32=file.crc32,
            )
        ]

    def abort(self) -> None:
        """Delete the buffer."""
        if self._file is not None:
            self._file.discard()

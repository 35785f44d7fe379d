"""Task side: writes Arrow batches into one durable Arrow IPC file beside the database."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from seamark.contracts.sink import WriterContext
from seamark.file_systems.local import sync_directory
from seamark.model import failpoints
from seamark.model.errors import WriteRefusedError
from seamark.sinks.internal.columns import datetimes_as_text
from seamark.sinks.internal.staged_files import StagedFile, create_staged, new_handle
from seamark.sinks.sqlite import database


class SQLiteWriter:
    """One attempt's writer. Writes no file without a row."""

    def __init__(self, path: str, table: str, root: Path, context: WriterContext) -> None:
        self._path = path
        self._table = table
        self._context = context
        self._handle = new_handle(context, "arrow")
        self._root = root
        self._staged = root / self._handle
        self._file: BinaryIO | None = None
        self._ipc: pa.RecordBatchFileWriter | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one batch to the staged file.

        Raises WriteRefusedError at the first batch, if the table exists and cannot take it, or if
        this machine does not share the database's directory with the driver.
        """
        if batch.num_rows == 0:
            return
        batch = datetimes_as_text(batch)
        if self._ipc is None:
            self._check_table(batch.schema)
            self._file = create_staged(self._root, self._handle)
            self._ipc = pa.ipc.new_file(self._file, batch.schema)
        self._ipc.write_batch(batch)
        self._rows += batch.num_rows

    def prepare_commit(self) -> Sequence[StagedFile]:
        """Make the staged file and its directory entry durable."""
        if self._ipc is None or self._file is None:
            return []
        self._ipc.close()  # once: each call writes the footer
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_directory(self._staged.parent)
        failpoints.reached("stage-written")
        return [StagedFile.of(self._context, self._handle, self._rows, size_bytes=size)]

    def abort(self) -> None:
        """Remove the staged file; leftovers are lingering."""
        if self._file is not None:
            with contextlib.suppress(Exception):
                self._file.close()
        with contextlib.suppress(OSError):
            self._staged.unlink()

    def _check_table(self, schema: pa.Schema) -> None:
        """Raise WriteRefusedError before the decision for a misfit that would stop the job after
        it."""
        if why := database.misfit(self._path, self._table, schema.names):
            raise WriteRefusedError(why)

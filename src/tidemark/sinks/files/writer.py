"""The task's side: one durable pending file per attempt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from tidemark.contracts.sink import WriterContext
from tidemark.file_systems.local import sync_directory
from tidemark.model import failpoints
from tidemark.sinks.files.formats import FORMATS, Encoder
from tidemark.sinks.internal.staged_files import StagedFile, create_staged, new_handle

PENDING = "_tidemark/pending"
"""Below the sink's directory: on the same file system, so that the rename is atomic."""


class FileWriter:
    """One attempt. Writes no file when no row comes."""

    def __init__(self, directory: Path, format_: str, context: WriterContext) -> None:
        self._format = format_
        self._context = context
        self._handle = new_handle(context, format_)
        self._root = directory / PENDING
        self._pending = self._root / self._handle
        self._file: BinaryIO | None = None
        self._encoder: Encoder | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one batch to the pending file. Raises WriteRefusedError, at the first batch, if
        this machine does not share the directory with the driver."""
        if batch.num_rows == 0:
            return
        if self._encoder is None:
            self._file = create_staged(self._root, self._handle)
            self._encoder = FORMATS[self._format](self._file, batch.schema)
        self._encoder.write(batch)
        self._rows += batch.num_rows

    def prepare_commit(self) -> Sequence[StagedFile]:
        """Make the pending file and its directory entry durable."""
        if self._encoder is None or self._file is None:
            return []
        self._encoder.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_directory(self._pending.parent)
        failpoints.reached("pending-written")
        at = self._context
        return [
            StagedFile(
                self._handle, at.job_id, at.sink_uid, at.generation, at.epoch, self._rows, size
            )
        ]

    def abort(self) -> None:
        """Remove the pending file; what stays is lingering."""
        for opened in (self._encoder, self._file):
            if opened is not None:
                with contextlib.suppress(Exception):
                    opened.close()
        with contextlib.suppress(OSError):
            self._pending.unlink()

"""The task's side: durable data files that no log entry names yet."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidemark.contracts.sink import WriterContext
from tidemark.model import failpoints
from tidemark.model.errors import WriteRefusedError
from tidemark.sinks.delta import pending_files
from tidemark.sinks.delta.committable import DeltaCommittable, dump_file, file_name, new_handle
from tidemark.sinks.delta.table_files import TableFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.sinks.delta.data_files import DataFiles


class DeltaWriter:
    """One attempt. Touches nothing when no row comes."""

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str],
        partition_by: Sequence[str],
        context: WriterContext,
    ) -> None:
        self._uri = uri
        self._storage_options = storage_options
        self._partition_by = partition_by
        self._handle = new_handle(context)
        self._log_version = 0
        self._files: TableFiles | None = None
        self._data: DataFiles | None = None
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one batch. Raises WriteRefusedError, at the first one, if this machine does not
        see the table."""
        if batch.num_rows == 0:
            return
        if self._data is None:
            self._begin()
        assert self._data is not None
        self._data.write(batch)
        self._rows += batch.num_rows

    def prepare_commit(self) -> Sequence[DeltaCommittable]:
        """Make the data files durable."""
        if self._data is None:
            return []
        files = tuple(dump_file(file) for file in self._data.close())
        failpoints.reached("data-files-written")
        return [DeltaCommittable(self._handle, self._log_version, self._rows, files)]

    def abort(self) -> None:
        """Delete the data files; what stays is lingering."""
        if self._data is None or self._files is None:
            return
        with contextlib.suppress(Exception):
            self._data.give_up()
        with contextlib.suppress(Exception):
            self._files.delete(self._data.paths)
            pending_files.delete(self._files, [self._handle])

    def _begin(self) -> None:
        from tidemark.sinks.delta.data_files import DataFiles

        files = self._files = TableFiles(self._uri, self._storage_options)
        if not files.is_there():
            raise WriteRefusedError(
                f"the Delta table {self._uri} that the driver has found does not exist on "
                f"{socket.gethostname()}; give DeltaSink a path on a file system that the driver "
                "and all executors share"
            )
        self._log_version = _last_checkpoint(files)
        self._data = DataFiles(
            files,
            self._partition_by,
            partial(file_name, self._handle),
            partial(pending_files.write, files, self._handle, self._log_version),
        )


def _last_checkpoint(files: TableFiles) -> int:
    """Return a version that the table's log has reached; what becomes of this attempt stands in a
    later entry. Cheap: the log's own hint, not a listing."""
    try:
        return int(json.loads(files.read("_delta_log/_last_checkpoint") or b"{}").get("version", 0))
    except ValueError:
        return 0

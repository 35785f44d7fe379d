"""The task's side: one durable spool file per attempt. Failpoint: `write-ahead-written`."""

from __future__ import annotations

from collections.abc import Sequence

from seamark.contracts.spool import SpoolWriter
from seamark.model import failpoints
from seamark.sinks.write_ahead.committable import SpooledRows


class WriteAheadWriter(SpoolWriter):
    """See `CommittingWriter`. Makes no file when no row comes."""

    abort = SpoolWriter.discard

    def prepare_commit(self) -> Sequence[SpooledRows]:
        """Make the spool file durable."""
        file = self.finish()
        if file is None:
            return []
        failpoints.reached("write-ahead-written")
        stored = {"directory": file.directory, "size_bytes": file.size_bytes, "crc32": file.crc32}
        return [SpooledRows.of(self._context, file.path, file.rows, **stored)]

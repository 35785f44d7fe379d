"""Local disks and HDFS: a pending file lies in ``_seamark/pending/``, and a rename publishes it.

Rename and deletion are atomic and exclude each other, in the kernel or in the NameNode. If one
driver commits and another aborts, exactly one succeeds; no further fencing is needed. Readers that
list the directory (Spark, pyarrow, pandas) skip names beginning with ``_``. A reader of every
``*.parquet`` at any depth (DuckDB's ``**``) finds none: pending names end with ``.pending``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from seamark.contracts.attempt_name import plain
from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.file_systems import RenamingDirectory
from seamark.file_systems.local import LocalDirectory
from seamark.model import failpoints
from seamark.sinks.files.pending_file import PendingFile, Stream, found
from seamark.sinks.internal.staged_files import require_shared

log = logging.getLogger(__name__)

PLACE = "_seamark/pending"
SUFFIX = ".pending"


class RenamedFiles:
    """See `Pending`."""

    at_once = 1

    def __init__(self, directory: RenamingDirectory) -> None:
        self._directory = directory

    def preflight(self, job_id: str, sink_uid: str) -> None:
        """Create the directories and try a rename."""
        name = f"probe-{uuid.uuid4().hex}"
        pending = f"{_place(job_id, sink_uid)}/{name}"
        self._directory.create(pending).close()
        self._directory.rename(pending, f"_{name}")
        self._directory.delete(f"_{name}")

    def begin(self, path: str, job_id: str, sink_uid: str) -> Stream:
        """Create the pending file."""
        if isinstance(self._directory, LocalDirectory):
            require_shared(Path(self._directory.uri, PLACE))
        file = self._directory.create(f"{_place(job_id, sink_uid)}/{path}{SUFFIX}")

        def finish() -> tuple[str, tuple[str, ...]]:
            file.close()
            return "", ()

        return Stream(path, file.write, finish, file.discard)

    def publish(self, file: PendingFile) -> CommitOutcome:
        """Rename the file. LOST: it is torn. UNKNOWN: it is neither pending nor published; it may
        have been published, and removed since."""
        pending, name = _pending(file), f"{self._directory.uri}: pending file {file.handle}"
        try:
            size = self._directory.size(pending)
            if size is not None and size != file.size_bytes:
                log.error(
                    "%s is damaged: it has %d bytes, %d were written", name, size, file.size_bytes
                )
                return CommitOutcome.LOST
            self._directory.rename(pending, file.handle)
        except FileNotFoundError:
            if self._directory.size(file.handle) is not None:
                return CommitOutcome.ALREADY_COMMITTED
            log.error("%s is gone", name)
            return CommitOutcome.UNKNOWN
        failpoints.reached("file-renamed")
        return CommitOutcome.COMMITTED

    def discard(self, file: PendingFile) -> AbortOutcome:
        """Delete the file; a later rename finds it missing."""
        self._directory.delete(_pending(file))
        published = self._directory.size(file.handle) is not None
        return AbortOutcome.COMMITTED if published else AbortOutcome.ABORTED

    def settle(self, files: Sequence[PendingFile]) -> None:
        """Sync the directories, and remove those used for pending files alone."""
        for file in files:
            if "/" in file.handle:
                self._directory.prune(_pending(file), below=_place(file.job_id, file.sink_uid))
        self._directory.sync([name for file in files for name in (file.handle, _pending(file))])

    def list(self, job_id: str, sink_uid: str) -> Iterator[PendingFile]:
        """List this sink's part of the pending area."""
        place = _place(job_id, sink_uid)
        for path in sorted(self._directory.list(place)):
            name = path.removeprefix(f"{place}/").removesuffix(SUFFIX)
            if (file := found(name, job_id, sink_uid)) is not None:
                yield file


def _pending(file: PendingFile) -> str:
    return f"{_place(file.job_id, file.sink_uid)}/{file.handle}{SUFFIX}"


def _place(job_id: str, sink_uid: str) -> str:
    return f"{PLACE}/{plain(job_id)}/{plain(sink_uid)}"

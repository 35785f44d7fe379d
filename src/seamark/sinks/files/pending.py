"""The place of undecided files: the interface of `renamed_files.py` and `uploads.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.file_systems import HadoopSettings, open_directory
from seamark.file_systems.s3 import S3Directory
from seamark.sinks.files.pending_file import PendingFile, Stream
from seamark.sinks.files.renamed_files import RenamedFiles
from seamark.sinks.files.uploads import Uploads


class Pending(Protocol):
    """Any process may call. If the file system cannot be reached, a call raises OSError or returns
    RETRY."""

    at_once: int
    """The number of files that threads may publish or discard in parallel."""

    def preflight(self, job_id: str, sink_uid: str) -> None:
        """Create the place, and try everything out once. Raises OSError."""
        ...

    def begin(self, path: str, job_id: str, sink_uid: str) -> Stream:
        """Begin the file that will be `path`. Raises WriteRefusedError if this machine does not see
        the driver's directory."""
        ...

    def publish(self, file: PendingFile) -> CommitOutcome:
        """Make the file visible in one step, or return its earlier outcome."""
        ...

    def discard(self, file: PendingFile) -> AbortOutcome:
        """Make the file impossible to publish, or report it published."""
        ...

    def settle(self, files: Sequence[PendingFile]) -> None:
        """Make all changes to these files durable. Raises OSError."""
        ...

    def list(self, job_id: str, sink_uid: str) -> Iterator[PendingFile]:
        """Yield every pending file of this job and sink, whole or torn."""
        ...


def open_pending(uri: str, settings: HadoopSettings) -> Pending:
    """Return the implementation for the file system of `uri`."""
    directory: Any = open_directory(uri, settings)
    return Uploads(directory) if isinstance(directory, S3Directory) else RenamedFiles(directory)

"""Where undecided files are kept: what `renamed_files.py` and `uploads.py` both do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.file_systems import HadoopSettings, open_directory
from seamark.file_systems.s3 import S3Directory
from seamark.sinks.files.pending_file import PendingFile
from seamark.sinks.files.renamed_files import RenamedFiles
from seamark.sinks.files.stream import Stream
from seamark.sinks.files.uploads import Uploads


class Pending(Protocol):
    """Any process may call. What cannot be reached raises OSError, or answers RETRY."""

    at_once: int
    """How many files may be published or discarded in parallel, by threads."""

    def preflight(self, job_id: str, sink_uid: str) -> None:
        """Make the place, and try everything out once; raises OSError."""
        ...

    def begin(self, path: str, job_id: str, sink_uid: str) -> Stream:
        """Begin the file that will be `path`. Raises WriteRefusedError if the driver's place is not
        to be seen from this machine."""
        ...

    def publish(self, file: PendingFile) -> CommitOutcome:
        """Make it visible in one step, or say what became of it."""
        ...

    def discard(self, file: PendingFile) -> AbortOutcome:
        """Make it impossible to publish, or say that it is published."""
        ...

    def settle(self, files: Sequence[PendingFile]) -> None:
        """Make what was done to these files durable; raises OSError."""
        ...

    def list(self, job_id: str, sink_uid: str) -> Iterator[PendingFile]:
        """Yield every pending file of this job and sink, whole or torn."""
        ...


def open_pending(uri: str, settings: HadoopSettings) -> Pending:
    """Return the way that fits the file system of `uri`."""
    directory: Any = open_directory(uri, settings)
    return Uploads(directory) if isinstance(directory, S3Directory) else RenamedFiles(directory)

"""One task attempt's rows as one file in a staging area: its name, its committable, its listing.

The staging area of a sink is ``<root>/<job>/<sink>/``; a file in it has its attempt's name. The
path below `root` is the transaction's handle. A file counts only once a committable names it, and a
committable exists only after the file's fsync: a torn file is lingering, never committed.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seamark.contracts.attempt_name import AttemptName, owner_path
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.files.local import make_directory, synced
from seamark.model import failpoints
from seamark.model.errors import CorruptRecordError, WriteRefusedError
from seamark.model.ignored import ignored
from seamark.sinks.internal.committables import UNKNOWN, AttemptCommittable


@dataclass(frozen=True)
class StagedFile(AttemptCommittable):
    """A committable: one durable file of rows, not yet visible to any reader."""

    size_bytes: int = UNKNOWN

    def __post_init__(self) -> None:
        if _name(self.handle) is None:  # it must not lead out of the staging area
            raise CorruptRecordError(f"{self.handle!r} is not the handle of a staged file")


def staging_directory(root: Path, at: SinkContext | WriterContext) -> Path:
    """Return the staging area of one sink of one job, below `root`."""
    return root / owner_path(at)


def new_handle(context: WriterContext, extension: str) -> str:
    """Return a handle for this attempt, never used by another attempt, nor by this one before."""
    return f"{AttemptName.of(context, owner_path(context))}.{extension}"


class StagedFileWriter:
    """The file of one attempt: made when it is needed, durable by `_flush`. A subclass fills it.
    `path` is below `root`."""

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._staged = root / path
        self._file: BinaryIO | None = None
        self._rows = 0

    def _create(self) -> BinaryIO:
        """Create the file. Raises WriteRefusedError, see `require_shared`."""
        require_shared(self._root)
        make_directory(self._staged.parent)
        self._file = self._staged.open("xb")
        return self._file

    def _flush(self, file: BinaryIO) -> int:
        """Make the file and its directory entry durable; return its size in bytes."""
        file.flush()
        os.fsync(file.fileno())
        size_bytes = file.tell()
        file.close()
        synced(self._staged.parent)
        failpoints.reached("stage-written")
        return size_bytes

    def abort(self) -> None:
        """Remove the file; leftovers are lingering."""
        if self._file is not None:
            with ignored("the end of a staged file"):
                self._file.close()
        with contextlib.suppress(OSError):
            self._staged.unlink()


def require_shared(directory: Path) -> None:
    """Raise WriteRefusedError if a directory made by the driver at its start is missing here: files
    staged on a machine that the driver cannot see could never be committed."""
    if not directory.is_dir():
        raise WriteRefusedError(
            f"{directory} was made by the driver and does not exist on {socket.gethostname()}; "
            "give the sink a path on a file system that the driver and all executors share"
        )


def list_staged(root: Path, context: SinkContext) -> Iterator[StagedFile]:
    """Yield every file staged by any attempt of this job and sink, whole or torn. Raises OSError
    without the directory that the preflight has made."""
    for path in sorted(staging_directory(root, context).iterdir()):
        handle = path.relative_to(root).as_posix()
        name = _name(handle)
        if name is None:
            continue
        with contextlib.suppress(FileNotFoundError):  # committed or aborted since it was listed
            yield StagedFile.found(context, handle, name, size_bytes=path.stat().st_size)


def _name(handle: str) -> AttemptName | None:
    """Return the attempt's name in a handle ``<job>/<sink>/<attempt>.<extension>``; or None."""
    name = AttemptName.parse(handle.rpartition(".")[0])
    return name if name is not None and name.owner.count("/") == 1 else None

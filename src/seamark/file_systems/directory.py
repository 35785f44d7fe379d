"""What every file system here can do: `Directory`, and `RenamingDirectory` for those that rename.

Every call raises FileNotFoundError or PermissionError for what they say, and OSError for all else,
a store that is away included, after the client's own few tries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO, Protocol


class NewFile(Protocol):
    """A file that is being written; pyarrow's writers take it as a sink.

    As a context manager it is closed at the end, and discarded if an exception leaves the block.
    A file that is neither closed nor discarded, because its process has died, may be there, torn.
    """

    @property
    def closed(self) -> bool:
        """Whether `close` or `discard` was called."""
        ...

    def write(self, data: Any, /) -> int:
        """Append bytes, or any contiguous buffer; its memory may be used again after the call."""
        ...

    def flush(self) -> None:
        """Nothing that a caller may rely on."""
        ...

    def close(self) -> None:
        """On return the whole file is readable under its name and durable, its name included. If it
        raises, nothing is certain. A second call does nothing."""
        ...

    def discard(self) -> None:
        """Give up: no file stays, as far as that can be done. Never raises. After `close` too."""
        ...

    def __enter__(self) -> NewFile: ...

    def __exit__(self, *error: Any) -> None: ...


class Directory(Protocol):
    """The files below one URI. Any thread may call, and the processes of many machines.

    Paths are relative to it, with forward slashes; directories on the way are made as needed. The
    object opens no connection before its first call.
    """

    @property
    def uri(self) -> str:
        """The directory, as a local path or a URI; it never holds a secret."""
        ...

    def create(self, path: str) -> NewFile:
        """Begin a new file. Put something random in its name: on local disks and HDFS a name that
        is taken raises FileExistsError, on S3 the newer file replaces the older one."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Return a whole file for reading from its beginning; the caller closes it."""
        ...

    def size(self, path: str) -> int | None:
        """Return a file's bytes, None if there is no such file."""
        ...

    def list(self, path: str = "") -> dict[str, int]:
        """Return every file below `path`, however deep, with its bytes; {} if there is none.
        On local disks and HDFS also those that are being written."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""
        ...


class RenamingDirectory(Directory, Protocol):
    """Local disks and HDFS, where a rename is one atomic step that a deletion excludes."""

    def rename(self, path: str, to: str) -> None:
        """Move a file to a name that is not taken. Raises FileNotFoundError if `path` is gone."""
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Make earlier renames and deletions of these names durable, those of a call that was cut
        off too."""
        ...

    def prune(self, path: str, below: str) -> None:
        """Remove the directories from that of `path` up to, and without, `below`, while they are
        empty. Best effort: never raises."""
        ...

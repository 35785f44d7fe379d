"""The file operations below the checkpoint store, on any Hadoop file system."""

import builtins
from typing import Protocol


class CheckpointFiles(Protocol):
    """A directory on a durable file system. Paths are relative to it, with forward slashes.

    `checkpoint/local_files.py` serves ``file:``, `runtime/hadoop_files.py` everything else.
    """

    @property
    def uri(self) -> str:
        """The directory, as a URI for Spark."""

    def create(self, path: str, data: bytes) -> None:
        """Create `path` with all of `data`, or raise FileExistsError and change nothing.

        Exclusive among all processes and machines, atomic (a reader sees all of it or no file) and
        durable on return. Parent directories are made.
        """

    def read(self, path: str) -> bytes:
        """Return the whole file; raises FileNotFoundError."""

    def exists(self, path: str) -> bool:
        """Whether the file exists now."""

    def list(self, path: str) -> list[str]:
        """Return the names in the directory, in no order; [] if there is none."""

    def sizes(self, *patterns: str) -> dict[str, int]:
        """Return the files matching any of the patterns, with their bytes.

        In a pattern such as ``state/*/*/*``, ``*`` is any part of one name; names beginning with
        ``.`` are left out. Ask for several patterns together: those below one directory share its
        listing.
        """

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with all its contents; a missing one is fine."""

    def tree(self) -> builtins.list[str]:
        """Return every file below the directory, at any depth, hidden files and links included."""

    def remove(self, path: str) -> None:
        """Delete one file, never a directory with files; a missing one is fine."""

    def remove_empty(self) -> None:
        """Delete every directory without files, this one and all below it."""

    def check(self, path: str) -> int:
        """Read the whole file and return its size in bytes.

        Raises FileNotFoundError, and CorruptRecordError if the file system's own checksum (a
        ``.crc`` file on local disks, block checksums on HDFS) proves the bytes changed.
        """

"""The operations of every store: `Directory`; of those with a client in Python, for rows too:
`RowDirectory`; with renames: `RenamingDirectory`. Many calls at once: `in_threads`.

Every call may raise FileNotFoundError or PermissionError in their usual meaning, and OSError for
all other faults, a store that is away included, after the client's own few tries. The store may or
may not have done the call then; each call can be repeated.
"""

import builtins
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, Protocol, TypeVar

I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T")

_READ_BYTES = 1 << 20


class NewFile(ABC):
    """A file being written; pyarrow's writers take it as a sink.

    As a context manager it is closed at the end, and discarded if an exception leaves the block. If
    its process dies before `close` or `discard`, the file may remain, torn.
    """

    closed = False
    """Whether `close` or `discard` was called."""

    @abstractmethod
    def write(self, data: Any, /) -> int:
        """Append bytes, or any contiguous buffer; its memory may be used again after the call."""

    def flush(self) -> None:  # noqa: B027 - not to be overridden
        """Promise nothing to the caller."""

    @abstractmethod
    def close(self) -> None:
        """Make the whole file durable and readable under its name, the name included.

        If it raises, nothing is certain. A second call does nothing.
        """

    @abstractmethod
    def discard(self) -> None:
        """Give up, also after `close`: no file stays, if that can be done. Never raises."""

    def __enter__(self) -> "NewFile":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close() if error[0] is None else self.discard()


class Directory(Protocol):
    """The files below one URI, on a durable store. Any thread may call, and processes on many
    machines.

    Paths are relative to it, with forward slashes; parent directories are made as needed. The
    object opens no connection before its first call.
    """

    uri: str
    """The directory, as a URI for Spark; it never holds a secret."""

    def create(self, path: str, data: bytes) -> None:
        """Create `path` with all of `data`, or raise FileExistsError and change nothing.

        Exclusive among all processes and machines, atomic (a reader sees all of it or no file) and
        durable on return. A repetition after a lost answer may be refused by its own file.
        """

    def read(self, path: str) -> bytes:
        """Return the whole file; raises FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the file, or a directory of this name, exists now."""
        ...

    def size(self, path: str) -> int | None:
        """Return a file's bytes, None if there is no such file."""

    def list(self, path: str) -> list[str]:
        """Return the names in the directory but those that begin with ``.``, in no order; [] if
        there is none."""
        ...

    def tree(self, path: str = "") -> dict[str, int]:
        """Return every file below `path`, at any depth, with its bytes, hidden files and links
        included; {} if there is none.

        On an object store this takes by far the fewest requests: one for a thousand files, in
        however many directories. Files still being written may be included.
        """
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with all its contents; a missing one is fine."""

    def remove(self, path: str) -> None:
        """Delete one file, never a directory with files; a missing one is fine."""

    def remove_empty(self) -> None:
        """Delete every directory without files, this one and all below it."""

    def check(self, path: str) -> int:
        """Read the whole file and return its size in bytes.

        Raises FileNotFoundError, and CorruptRecordError if the file system's own checksum (a
        ``.crc`` file on local disks, block checksums on HDFS) proves the bytes changed.
        """
        ...


class RowDirectory(Directory, Protocol):
    """Local disks, HDFS and object stores, which Python workers reach: files also come and go in
    pieces."""

    def begin(self, path: str) -> NewFile:
        """Begin a new file; put something random in its name.

        A taken name raises FileExistsError; but on object stores the newer file replaces the
        older one.
        """
        ...

    def open(self, path: str) -> BinaryIO:
        """Return a whole file for reading from its beginning, which may not seek; the caller closes
        it."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        with self.open(path) as file:
            return file.read()

    def check(self, path: str) -> int:
        """Read the whole file; the client compares what checksums its store has."""
        with self.open(path) as file:
            return sum(len(block) for block in iter(partial(file.read, _READ_BYTES), b""))

    def stat(self, path: str) -> tuple[int, float] | None:
        """Return a file's bytes, and when it was last written, by the store's clock, in seconds
        since 1970; None if there is no such file."""
        ...

    def size(self, path: str) -> int | None:
        """Return a file's bytes, None if there is no such file."""
        found = self.stat(path)
        return None if found is None else found[0]

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, as `stat` does."""
        found = self.stat(path)
        return None if found is None else found[1]

    def __str__(self) -> str:
        """Return the local path, or the URI, for messages."""
        return self.uri


class RenamingDirectory(RowDirectory, Protocol):
    """Local disks and HDFS: a rename is one atomic step and excludes a deletion."""

    def rename(self, path: str, to: str) -> None:
        """Move a file to a free name. Raises FileNotFoundError if `path` is gone."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make earlier renames and deletions of these names durable, of interrupted calls too."""

    def prune(self, path: str, below: str) -> None:
        """Remove empty directories, from the parent of `path` up to, and without, `below`.

        Best effort: never raises.
        """


def visible(names: Iterable[str]) -> builtins.list[str]:
    """Return the names without those that begin with ``.``: checksums, unfinished files."""
    return [name for name in names if name and not name.startswith(".")]


def numbered(names: Iterable[str], ending: str = "") -> builtins.list[int]:
    """Return the numbers that the names are before this ending, ascending, without other names."""
    stems = (name.removesuffix(ending) for name in names if name.endswith(ending))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def in_threads(ask: Callable[[I], T], items: Sequence[I], at_once: int) -> list[T]:
    """Return the answer for each item, of which `at_once` are asked at a time. When the program
    ends, no thread begins any more, and they are asked one after another."""
    asked: list[Future[T]] = []
    if min(at_once, len(items)) > 1:
        with ThreadPoolExecutor(at_once) as threads, contextlib.suppress(RuntimeError):
            for item in items:
                asked.append(threads.submit(ask, item))
    return [one.result() for one in asked] + [ask(item) for item in items[len(asked) :]]

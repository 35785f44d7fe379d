"""The operations of every file system here: `Directory`; with renames: `RenamingDirectory`. Many
calls at once: `in_threads`.

Every call may raise FileNotFoundError or PermissionError in their usual meaning, and OSError for
all other faults, a store that is away included, after the client's own few tries.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Protocol, TypeVar

I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T")


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
    """The files below one URI. Any thread may call, and processes on many machines.

    Paths are relative to it, with forward slashes; parent directories are made as needed. The
    object opens no connection before its first call.
    """

    @property
    def uri(self) -> str:
        """The directory, as a local path or a URI; it never holds a secret."""

    def create(self, path: str) -> NewFile:
        """Begin a new file; put something random in its name.

        A taken name raises FileExistsError; but on S3 the newer file replaces the older one.
        """

    def open(self, path: str) -> BinaryIO:
        """Return a whole file for reading from its beginning, which may not seek; the caller closes
        it."""

    def size(self, path: str) -> int | None:
        """Return a file's bytes, None if there is no such file."""

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, by the store's clock, in seconds since 1970; None if
        there is no such file."""
        ...

    def list(self, path: str = "") -> dict[str, int]:
        """Return every file below `path`, at any depth, with its bytes; {} if there is none.

        On local disks and HDFS, files still being written are included.
        """

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is fine."""


class RenamingDirectory(Directory, Protocol):
    """Local disks and HDFS: a rename is one atomic step and excludes a deletion."""

    def rename(self, path: str, to: str) -> None:
        """Move a file to a free name. Raises FileNotFoundError if `path` is gone."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make earlier renames and deletions of these names durable, of interrupted calls too."""

    def prune(self, path: str, below: str) -> None:
        """Remove empty directories, from the parent of `path` up to, and without, `below`.

        Best effort: never raises.
        """


def in_threads(ask: Callable[[I], T], items: Sequence[I], at_once: int) -> list[T]:
    """Return the answer for each item, of which `at_once` are asked at a time. When the program
    ends, no thread begins any more, and they are asked one after another."""
    asked: list[Future[T]] = []
    if min(at_once, len(items)) > 1:
        with ThreadPoolExecutor(at_once) as threads, contextlib.suppress(RuntimeError):
            for item in items:
                asked.append(threads.submit(ask, item))
    return [one.result() for one in asked] + [ask(item) for item in items[len(asked) :]]

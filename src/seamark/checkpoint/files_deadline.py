"""`CheckpointFiles` that never hang: each call on the files behind it has a deadline.

A local mount (NFS, a dead disk) can keep a call for ever, and so can a server that accepts a
connection and says nothing. A call that is given up may still be done later: the protocol allows
for that (tests/model, "late" replies).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from seamark.checkpoint.call_deadline import CallHangsError, call_within
from seamark.checkpoint.local_files import LocalFiles
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.errors import StorageHangsError

T = TypeVar("T")

CALL_S = 60.0
"""For a call on one small file or one directory."""
LONG_CALL_S = 600.0
"""For a call that grows with the state: to read a file through, to look at or delete a tree."""
CALL_AGAIN_S = 5.0
"""For any call, once one has not returned, until one does: a start, or the end of a run, makes
several one after another."""


class DeadlineFiles:
    """`files` with deadlines. Raises what they raise, and StorageHangsError."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._hangs = False

    @property
    def uri(self) -> str:
        """The directory, as a URI that Spark takes."""
        return self._files.uri

    def create(self, path: str, data: bytes) -> None:
        """Create `path` with all of `data`, or raise FileExistsError and change nothing."""
        self._call("create", path, lambda: self._files.create(path, data))

    def read(self, path: str) -> bytes:
        """Return the whole file; raises FileNotFoundError."""
        return self._call("read", path, lambda: self._files.read(path))

    def exists(self, path: str) -> bool:
        """Whether the file exists now."""
        return self._call("look for", path, lambda: self._files.exists(path))

    def list(self, path: str) -> list[str]:
        """Return the names in the directory, in no order; [] if there is none."""
        return self._call("list", path, lambda: self._files.list(path))

    def sizes(self, *patterns: str) -> dict[str, int]:
        """Return the files that match one of the patterns, with their bytes."""
        return self._call("list", patterns[0], lambda: self._files.sizes(*patterns), long=True)

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with all in it; a missing one is fine."""
        self._call("delete", path, lambda: self._files.delete(path), long=True)

    def tree(self) -> builtins.list[str]:
        """Return every file below the directory."""
        return self._call("list", "", self._files.tree, long=True)

    def remove(self, path: str) -> None:
        """Delete one file."""
        self._call("delete", path, lambda: self._files.remove(path))

    def remove_empty(self) -> None:
        """Delete every directory in which no file is."""
        self._call("delete", "", self._files.remove_empty, long=True)

    def check(self, path: str) -> int:
        """Read the file through and return its size in bytes; raises CorruptRecordError."""
        return self._call("check", path, lambda: self._files.check(path), long=True)

    def _call(self, what: str, path: str, call: Callable[[], T], *, long: bool = False) -> T:
        seconds = CALL_AGAIN_S if self._hangs else LONG_CALL_S if long else CALL_S
        try:
            result = call_within(seconds, call)
        except CallHangsError:
            self._hangs = True
            raise storage_hangs(f"{self.uri}/{path}", what, seconds) from None
        except BaseException:
            self._hangs = False
            raise
        self._hangs = False
        return result


def open_local(directory: str | Path, *, make: bool = True) -> CheckpointFiles:
    """Return the files below a local directory, which is made if it is missing, unless `make` is
    False. Raises PreflightError or StorageHangsError."""
    try:
        return DeadlineFiles(call_within(CALL_S, lambda: LocalFiles(directory, make=make)))
    except CallHangsError:
        raise storage_hangs(f"file://{directory}", "make", CALL_S) from None


def storage_hangs(uri: str, what: str, seconds: float) -> StorageHangsError:
    """Return the error for a call that has not returned."""
    return StorageHangsError(
        f"checkpoint storage hangs: to {what} {uri} has not ended within {seconds:g} s. Nothing is "
        "lost; check that its file system is mounted and answers, or that its server does, and "
        "start the job again"
    )

"""`CheckpointFiles` that never hang: each call on the files behind it has a deadline.

A local mount (NFS, a dead disk) can keep a call for ever, and so can a server that accepts a
connection and stays silent. A call given up may still take effect later: the protocol allows for it
(tests/model, "late" replies).
"""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from seamark.checkpoint.call_deadline import CallHangsError, call_within
from seamark.checkpoint.local_files import LocalFiles
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.errors import StorageHangsError

T = TypeVar("T")

CALL_S = 60.0
"""For a call on one small file or one directory."""
LONG_CALL_S = 600.0
"""For a call whose duration grows with the state: to read a file through, to list or delete a tree.
"""
CALL_AGAIN_S = 5.0
"""For calls after one that has not returned: a start, or a run's end, makes several in a row."""


_LONG = ("sizes", "delete", "tree", "remove_empty", "check")
_SAID = {
    "exists": "look for", "sizes": "list", "tree": "list", "remove": "delete",
    "remove_empty": "delete",
}  # fmt: skip
"""A method's name in an error, if not its own."""


class _DeadlineFiles:
    """Has every method of `files`, each call with a deadline."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files
        self._last = threading.local()  # a thread's hanging deletion is no other thread's concern
        self.uri = files.uri

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        hangs = getattr(self._last, "hangs", False)
        seconds = CALL_AGAIN_S if hangs else LONG_CALL_S if name in _LONG else CALL_S
        uri = f"{self.uri}/{arguments[0] if arguments else ''}"
        call = partial(getattr(self._files, name), *arguments)
        try:
            result = storage_call(seconds, call, _SAID.get(name, name), uri)
        except StorageHangsError:
            self._last.hangs = True
            raise
        except BaseException:
            self._last.hangs = False
            raise
        self._last.hangs = False
        return result


def with_deadlines(files: CheckpointFiles) -> CheckpointFiles:
    """Return `files` with deadlines: a call not back in time raises StorageHangsError."""
    return cast(CheckpointFiles, _DeadlineFiles(files))


def open_local(directory: str | Path, *, make: bool = True) -> CheckpointFiles:
    """Return the files below a local directory. A missing directory is made, unless `make` is
    False. Raises PreflightError or StorageHangsError."""
    make_files = partial(LocalFiles, directory, make=make)
    return with_deadlines(storage_call(CALL_S, make_files, "make", f"file://{directory}"))


def storage_call(seconds: float, call: Callable[[], T], what: str, uri: str) -> T:
    """Do as `call_within`; raise StorageHangsError, with `what` the call does to `uri`, if it has
    not returned."""
    try:
        return call_within(seconds, call)
    except CallHangsError:
        raise StorageHangsError(
            f"checkpoint storage hangs: to {what} {uri} has not ended within {seconds:g} s. "
            "Nothing is lost; check that its file system is mounted and answers, or that its "
            "server does, and start the job again"
        ) from None

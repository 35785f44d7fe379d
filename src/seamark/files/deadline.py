"""Calls to an outside system with a deadline: a call that hangs ends the run, not the program.

A hanging call cannot be interrupted. It runs in a thread of its own, left behind when the deadline
passes, and may still take effect later: the protocol allows for it (tests/model, "late" replies). A
local mount (NFS, a dead disk) can keep a call for ever, and so can a server that accepts a
connection and stays silent. `checkpoint/sink_commits.py` keeps a thread for its committers and
makes no further call to one that hangs; `call_within` takes one from the pool for each call, and
so does each call on a directory made by `with_deadlines`.
"""

import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from seamark.files.directory import Directory
from seamark.files.local import LocalDirectory
from seamark.model.errors import PreflightError, StorageHangsError

T = TypeVar("T")

POLL_S = 0.5
"""A waiting caller's interval for checking whether the deadline has been brought forward."""
CALL_S = 60.0
"""For a call on one small file or one directory."""
LONG_CALL_S = 600.0
"""For a call whose duration grows with the state: to read a file through, to list or delete a tree.
"""
CALL_AGAIN_S = 5.0
"""For calls after one that has not returned: a start, or a run's end, makes several in a row."""
_LONG = ("delete", "tree", "remove_empty", "check")
_SAID = {
    "exists": "look for",
    "size": "look for",
    "tree": "list",
    "remove": "delete",
    "remove_empty": "delete",
}
"""A method's name in an error, if not its own."""


class CallHangsError(Exception):
    """A call has not returned by its deadline. It may still return later, or never."""


class Deadline:
    """A moment by the monotonic clock: made once for a piece of work, handed to each wait in it."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left_s(self) -> float:
        """Return the seconds that a wait may still take; 0 or less when it has passed."""
        return self._at - time.monotonic()

    def wait_for(self, done: Callable[[], object], pause_s: float = 0.05) -> bool:
        """Return whether `done` was true before it passed."""
        while not (is_done := done()) and self.left_s() > 0:
            time.sleep(pause_s)
        return bool(is_done)


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Return the result of `function`, or raise its error; raise CallHangsError after `seconds`.

    After CallHangsError `function` may still do its work. Many threads may call at once.
    """
    try:
        thread = _idle.pop()
    except IndexError:
        thread = CallThread("seamark-call")
    try:
        return thread.call(function, Deadline(seconds).left_s)
    finally:
        if thread.idle:
            _idle.append(thread)


class CallThread:
    """One thread for the calls of one caller at a time. A daemon: it never holds up an exit."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.idle = True
        """False while a call has not returned."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T], left_s: Callable[[], float]) -> T:
        """Return the result of `function`, or raise its error; raise CallHangsError when `left_s`,
        usually a deadline's, returns no more seconds. They may become fewer meanwhile. After
        CallHangsError this thread is not used again, and ends when the call returns."""
        answer: Future[T] = Future()
        self.idle = False

        def make() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self._calls.put(make)
        while (left := left_s()) > 0:
            try:
                answer.exception(min(left, POLL_S))
            except FutureTimeoutError:
                continue
            self.idle = True
            return answer.result()
        self.close()
        raise CallHangsError

    def close(self) -> None:
        """End the thread after its last call."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # the objects it refers to must not live until the next call


_idle: list[CallThread] = []
os.register_at_fork(after_in_child=_idle.clear)  # a child of Spark's daemon has none of its threads


# --- directories


class _DeadlineFiles:
    """Has every method of `files`, each call with a deadline."""

    def __init__(self, files: Directory) -> None:
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
        self._last.hangs = False
        try:
            return storage_call(seconds, call, _SAID.get(name, name), uri)
        except StorageHangsError:
            self._last.hangs = True
            raise


def with_deadlines(files: Directory) -> Directory:
    """Return `files` with deadlines: a call not back in time raises StorageHangsError."""
    return cast(Directory, _DeadlineFiles(files))


def open_local(path: str | Path, *, make: bool = True) -> Directory:
    """Return the files below a local directory. A missing directory is made, unless `make` is
    False. Raises PreflightError or StorageHangsError."""
    if make:
        storage_call(CALL_S, partial(_make, Path(path)), "make", f"file://{path}")
    return with_deadlines(LocalDirectory(path))


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(
            f"checkpoint directory {directory}: cannot be made ({error.strerror}); "
            "make it writable for this user or choose another storage"
        ) from error


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

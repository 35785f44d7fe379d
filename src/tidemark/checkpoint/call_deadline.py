"""Calls into a sink's committer with a deadline: a call that hangs ends the run, not the program.

A hanging call cannot be interrupted. It runs in a thread of its own, which is left behind when the
deadline passes; `sink_commits.py` makes no further call to that committer.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CallHangsError(Exception):
    """A call has not returned by its deadline, and may still return or not."""


POLL_S = 0.5
"""How often a waiting caller looks whether the deadline has been brought forward."""


class CallThread:
    """One thread that makes calls for one caller at a time. A daemon: it never holds up an exit."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T], deadline: Callable[[], float]) -> T:
        """Return what `function` returns, or raise what it raises; CallHangsError when the
        monotonic clock passes `deadline()`, which may change meanwhile. Not used again then."""
        call = _Call(function)
        self._calls.put(call)
        while (left_s := deadline() - time.monotonic()) > 0:
            if call.done.wait(min(left_s, POLL_S)):
                return call.result()
        raise CallHangsError

    def close(self) -> None:
        """End the thread after its last call."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()


class _Call(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._value: list[T] = []
        self._error: BaseException | None = None
        self.done = threading.Event()

    def make(self) -> None:
        try:
            self._value.append(self._function())
        except BaseException as error:
            self._error = error
        self.done.set()

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value[0]

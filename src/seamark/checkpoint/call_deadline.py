"""Calls to an outside system with a deadline: a call that hangs ends the run, not the program.

A hanging call cannot be interrupted. It runs in a thread of its own, left behind when the deadline
passes. `sink_commits.py` keeps a thread for its committers and makes no further call to one that
hangs; `files_deadline.py` and `runtime/` take one from the pool for each call.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

T = TypeVar("T")


class CallHangsError(Exception):
    """A call has not returned by its deadline. It may still return later, or never."""


POLL_S = 0.5
"""A waiting caller's interval for checking whether the deadline has been brought forward."""


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Return the result of `function`, or raise its error; raise CallHangsError after `seconds`.

    After CallHangsError `function` may still do its work. Many threads may call at once.
    """
    deadline = time.monotonic() + seconds
    try:
        thread = _idle.pop()
    except IndexError:
        thread = CallThread("seamark-call")
    try:
        return thread.call(function, lambda: deadline)
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

    def call(self, function: Callable[[], T], deadline: Callable[[], float]) -> T:
        """Return the result of `function`, or raise its error; raise CallHangsError when the
        monotonic clock passes `deadline()`. The deadline may change meanwhile. After CallHangsError
        this thread is not used again."""
        answer: Future[T] = Future()
        self.idle = False

        def make() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:
                answer.set_exception(error)

        self._calls.put(make)
        while (left_s := deadline() - time.monotonic()) > 0:
            try:
                answer.exception(min(left_s, POLL_S))
            except FutureTimeoutError:
                continue
            self.idle = True
            return answer.result()
        raise CallHangsError

    def close(self) -> None:
        """End the thread after its last call."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # the objects it refers to must not live until the next call


_idle: list[CallThread] = []

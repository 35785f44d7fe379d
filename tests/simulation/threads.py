"""Stand-ins for `threading`, `time`, `queue`, futures and `uuid`, on the running `Machine`.

The coordinator's modules import whole modules (``import threading``), so `installed` only has to
give these modules other names to look up: no line of them knows of the simulation.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import threading as real_threading
import time as real_time
import uuid as real_uuid
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from seamark.files.location import decoded
from seamark.model import failpoints

from .disk import SimulatedDirectory, SimulatedFiles
from .machine import Machine, Thread

_running: Any = None
"""The `Machine` of the run that is played."""
_ids = itertools.count(1)


def machine() -> Machine:
    return _running  # type: ignore[no-any-return]


class Lock:
    """`threading.Lock`, and `RLock` too: its owner may take it again."""

    def __init__(self) -> None:
        self._owner: Thread | None = None
        self._depth = 0

    def acquire(self) -> bool:
        at = _running
        if self._owner is not at.current or self._owner is None:
            at.step("lock")
            if self._owner is not None:
                at.block(lambda: self._owner is None)
            self._owner = at.current
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._owner, self._depth = None, 0

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock()
        self._waiting: dict[int, list[None]] = {}

    def __enter__(self) -> Condition:
        self._lock.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        lock, at = self._lock, _running
        told: list[None] = []  # while empty, nobody has told it
        self._waiting[id(told)] = told
        depth, lock._depth, lock._owner = lock._depth, 0, None
        at.block(told.__len__, timeout)
        self._waiting.pop(id(told), None)
        at.block(lambda: lock._owner is None)
        lock._owner, lock._depth = at.current, depth
        return bool(told)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = math.inf if timeout is None else _running.now + timeout
        while not (result := predicate()):
            left = deadline - _running.now
            if left <= 0:
                break
            self.wait(None if left == math.inf else left)
        return result

    def notify_all(self) -> None:
        for told in self._waiting.values():
            told.append(None)
        self._waiting.clear()


class Event:
    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, timeout: float | None = None) -> bool:
        return _running.block(lambda: self._set, timeout)


class Barrier:
    def __init__(self, parties: int) -> None:
        self._missing = parties

    def wait(self) -> None:
        self._missing -= 1
        _running.block(lambda: self._missing <= 0)


class SimulatedThread:
    """`threading.Thread`."""

    def __init__(
        self,
        target: Callable[..., None],
        name: str = "thread",
        args: tuple[Any, ...] = (),
        daemon: bool = False,
    ) -> None:
        self._body = lambda: target(*args)
        self._name = name.removeprefix("seamark-")
        self._thread: Thread | None = None

    def start(self) -> None:
        at = _running
        assert at.current is not None
        self._thread = at.spawn(at.current.process, self._name, self._body)
        at.step(f"started {self._name}")

    def is_alive(self) -> bool:
        return self._thread is not None and not self._thread.greenlet.dead

    def join(self, timeout: float | None = None) -> None:
        _running.block(lambda: not self.is_alive(), timeout)


class Timer:
    """`threading.Timer`."""

    def __init__(self, interval: float, function: Callable[..., None], args: Any = ()) -> None:
        self.daemon = False
        self._cancelled = False

        def body() -> None:
            if not _running.block(lambda: self._cancelled, interval):
                function(*args)

        self._thread = SimulatedThread(body, "timer")
        self.start = self._thread.start

    def cancel(self) -> None:
        self._cancelled = True


class SimpleQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        _running.block(self._items.__len__)
        return self._items.popleft()


class Future:
    def __init__(self) -> None:
        self._answer: list[tuple[Any, BaseException | None]] = []

    def __class_getitem__(cls, item: object) -> type[Future]:
        return cls

    def set_result(self, result: Any) -> None:
        self._answer.append((result, None))

    def set_exception(self, error: BaseException) -> None:
        self._answer.append((None, error))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not _running.block(self._answer.__len__, timeout):
            raise TimeoutError
        return self._answer[0][1]

    def done(self) -> bool:
        return bool(self._answer)

    def result(self) -> Any:
        if (error := self.exception()) is not None:
            raise error
        return self._answer[0][0]


def _process() -> Any:
    assert _running.current is not None
    return _running.current.process


class _Idle:
    """The pool of call threads, one for each process."""

    def pop(self) -> Any:
        return _process().idle_calls.pop()

    def append(self, thread: Any) -> None:
        _process().idle_calls.append(thread)


class _Sends:
    """The calls of write-ahead sinks, those of each process."""

    def get(self, key: Any) -> Any:
        return _process().sends.get(key)

    def __setitem__(self, key: Any, call: Any) -> None:
        _process().sends[key] = call

    def __delitem__(self, key: Any) -> None:
        del _process().sends[key]


class _Places:
    """The locations that a worker of ``format("seamark")`` keeps, those of each process."""

    def __contains__(self, key: Any) -> bool:
        return key in _process().places

    def __getitem__(self, key: Any) -> Any:
        return _process().places[key]

    def __setitem__(self, key: Any, place: Any) -> None:
        _process().places[key] = place


class _TaskContext:
    @staticmethod
    def get() -> Any:
        return _process().task


def _module(real: ModuleType, **names: Any) -> ModuleType:
    stands = ModuleType(real.__name__)
    stands.__getattr__ = lambda name: getattr(real, name)  # type: ignore[method-assign]
    vars(stands).update(names)
    return stands


class _Queue(ModuleType):
    SimpleQueue = SimpleQueue


THREADING = _module(
    real_threading,
    Lock=Lock, RLock=Lock, Condition=Condition, Event=Event, Barrier=Barrier,
    Thread=SimulatedThread, Timer=Timer,
)  # fmt: skip
TIME = _module(
    real_time,
    monotonic=lambda: _running.now,
    perf_counter=lambda: _running.now,
    time=lambda: 1.7e9 + _running.now,
    sleep=lambda seconds: _running.sleep(seconds),
)
UUID = _module(real_uuid, uuid4=lambda: real_uuid.UUID(int=next(_ids)))


def open_directory(uri: str, settings: object = None) -> SimulatedDirectory:
    """`files.open_directory`, on the machine's disk."""
    return SimulatedDirectory(_running.disk, decoded(uri).removeprefix("file:").lstrip("/"))


def open_for_rows(uri: str, settings: object = None) -> SimulatedFiles:
    """`files.open_for_rows`, on the machine's disk."""
    return SimulatedFiles(_running.disk, uri.lstrip("/"), _running.world.judged)


STANDS = {
    "seamark.files.deadline": {
        "threading": THREADING, "time": TIME, "queue": _Queue("queue"), "Future": Future,
        "FutureTimeoutError": TimeoutError, "_idle": _Idle(),
    },
    "seamark.checkpoint.batch_log": {
        "time": TIME, "uuid": UUID, "KEPT": 4, "_FORGOTTEN_AT_ONCE": 2,
    },
    "seamark.checkpoint.coordinator": {"threading": THREADING, "time": TIME},
    "seamark.checkpoint.epoch_queue": {"threading": THREADING, "time": TIME},
    "seamark.checkpoint.flow_figures": {"threading": THREADING, "time": TIME},
    "seamark.checkpoint.sink_commits": {"time": TIME},
    "seamark.checkpoint.spool": {"time": TIME, "open_directory": open_directory},
    "seamark.checkpoint.statistics_recorder": {"threading": THREADING, "time": TIME},
    "seamark.checkpoint.storage_check": {"threading": THREADING, "uuid": UUID},
    "seamark.checkpoint.store": {"time": TIME, "uuid": UUID},
    "seamark.checkpoint.upkeep": {"threading": THREADING},
    "seamark.contracts.attempt_name": {"uuid": UUID},
    "seamark.contracts.spool": {"open_directory": open_directory},
    "seamark.datasource.location": {
        "threading": THREADING, "time": TIME, "open_for_rows": open_for_rows, "_known": _Places(),
        "os": _module(os, getppid=lambda: _running.processes.index(_process().spark)),
        "sink_of_options": lambda options: _process().make_sink(),
        "secrets_in": lambda value: set(),  # a played sink has the whole world in it
    },
    "seamark.datasource.options": {"secrets_in": lambda value: set()},
    "seamark.datasource.writers": {
        "time": TIME, "TaskContext": _TaskContext, "secrets_in": lambda value: set(),
    },
    "seamark.run.task_attempt": {"time": TIME},
    "seamark.sinks.write_ahead.committer": {
        "threading": THREADING, "open_directory": open_directory, "Future": Future,
        "FutureTimeoutError": TimeoutError, "_calls": _Sends(),
    },
    "seamark.sinks.write_ahead.epoch_spool": {"uuid": UUID, "open_directory": open_directory},
}  # fmt: skip
"""The names that each module looks up here instead."""


@contextlib.contextmanager
def patched(names: dict[tuple[Any, str], Any]) -> Iterator[None]:
    """Give objects other attributes, by object and name, until the block ends."""
    before = {(on, name): vars(on).get(name) for on, name in names}
    for (on, name), value in names.items():
        setattr(on, name, value)
    try:
        yield
    finally:
        for (on, name), was in before.items():
            if was is None:
                delattr(on, name)
            else:
                setattr(on, name, was)


def installed() -> contextlib.AbstractContextManager[None]:
    """Give the coordinator's modules the stand-ins until the block ends."""
    names: dict[tuple[Any, str], Any] = {
        (importlib.import_module(module), name): stand
        for module, stands in STANDS.items()
        for name, stand in stands.items()
    }
    names[failpoints, "reached"] = lambda name: _running.reached(name)
    return patched(names)


@contextlib.contextmanager
def on(new: Machine) -> Iterator[None]:
    """Let the stand-ins use this machine until the block ends."""
    global _running, _ids
    before, _running, _ids = _running, new, itertools.count(1)
    try:
        yield
    finally:
        _running = before

"""What was asked of a job and goes on: Flink's asynchronous operations, found by trigger ids.

A request begins one and is answered at once with its id; whoever has the id polls it until it is
COMPLETED. `routes.py` has the paths.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, TypeVar

from seamark.model.errors import SeamarkError
from seamark.runtime.failures import reason_of

T = TypeVar("T")

KEPT = 200
"""So many operations are remembered; the oldest completed one goes first."""
AT_ONCE = 32
"""So many may be under way."""

WAITED_FOR_S = 5.0
"""Who has begun an operation asks for its end so often, at least."""

Shown = Callable[[Any], Mapping[str, Any]]
"""Makes an operation's answer of its result."""


class TooManyOperationsError(SeamarkError):
    """So many operations are under way that no more are begun; ask again later."""


class Operation:
    """One operation: what `kind` it is, how its result is `shown`, and the `result` to come."""

    def __init__(self, kind: str, shown: Shown, result: Future[Any]) -> None:
        self.kind = kind
        self.result = result
        self._shown = shown
        self._told = False
        self._done_s = math.inf
        result.add_done_callback(self._done)

    def _done(self, result: Future[Any]) -> None:
        self._done_s = time.monotonic()

    def is_waited_for(self) -> bool:
        """Whether nobody has been told yet what came of it, and it ended only now, if at all."""
        return not self._told and time.monotonic() - self._done_s < WAITED_FOR_S

    def answer(self) -> dict[str, Any]:
        """Return it as Flink does: its status, and when it is completed what came of it."""
        if not self.result.done():
            under_way: dict[str, Any] = {"status": {"id": "IN_PROGRESS"}, "operation": None}
            progress = getattr(self.result, "progress", lambda: None)()
            return under_way if progress is None else {**under_way, "progress": asdict(progress)}
        self._told = True
        error = self.result.exception()
        if error is None:
            operation = dict(self._shown(self.result.result()))
        else:
            cause = {"class": type(error).__name__, "stack-trace": reason_of(error)}
            operation = {"failure-cause": cause}
        return {"status": {"id": "COMPLETED"}, "operation": operation}


class Operations:
    """The operations of one driver, by trigger id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: OrderedDict[str, Operation] = OrderedDict()

    def begin(
        self, kind: str, trigger_id: str | None, start: Callable[[], Future[Any]], shown: Shown
    ) -> str:
        """Begin an operation; return its trigger id: `trigger_id`, or a new one. The same id given
        again, for the same kind, begins nothing: a client may repeat a request that was not
        answered. Raises what `start` raises, and TooManyOperationsError."""
        with self._lock:
            trigger_id = trigger_id or secrets.token_hex(16)
            if (known := self._by_id.get(trigger_id)) is not None and known.kind == kind:
                return trigger_id
            if sum(not o.result.done() for o in self._by_id.values()) >= AT_ONCE:
                raise TooManyOperationsError(
                    f"{AT_ONCE} operations are under way already; poll them, and ask again later"
                )
            self._by_id[trigger_id] = Operation(kind, shown, start())
            while len(self._by_id) > KEPT:
                self._by_id.popitem(last=False)
            return trigger_id

    def find(self, kind: str, trigger_id: str) -> Operation | None:
        """Return an operation of this kind; None if there is none, or it is forgotten."""
        with self._lock:
            operation = self._by_id.get(trigger_id)
        return operation if operation is not None and operation.kind == kind else None

    def are_waited_for(self) -> bool:
        """Whether somebody is still to be told what came of one."""
        with self._lock:
            return any(operation.is_waited_for() for operation in self._by_id.values())


def beside(work: Callable[[], T]) -> Future[T]:
    """Begin `work` on a thread of its own; return what will come of it."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="seamark-rest-work", daemon=True).start()
    return answer

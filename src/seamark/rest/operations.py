"""Flink's asynchronous operations: begun by a request, found by trigger id.

A request begins an operation and is answered at once with its trigger id. The client polls by this
id until the operation is COMPLETED. `action_routes.py` has the paths.
"""

import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, TypeVar

from fastapi import HTTPException

from seamark.model.errors import UserError
from seamark.rest.models import TriggerRequest, TriggerResponse
from seamark.run.failures import reason_of

T = TypeVar("T")

KEPT = 200
"""Operations remembered; the oldest ended operation goes first."""
AT_ONCE = 32
"""Operations under way at most."""

WAITED_FOR_S = 5.0
"""A client polls its operation at least this often."""

Shown = Callable[[Any], Mapping[str, Any]]
"""Makes the answer from an operation's result."""


class Operation:
    """One operation: its `kind`, its `result` to come, and `shown` to make the answer from it."""

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
        """Whether a client may still wait: nobody was told the outcome, and the operation is under
        way or ended less than WAITED_FOR_S ago."""
        return not self._told and time.monotonic() - self._done_s < WAITED_FOR_S

    def answer(self) -> dict[str, Any]:
        """Return the operation as Flink does: its status, and after completion its outcome. Under
        way it has its progress, if known."""
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
        self._by_id: dict[str, Operation] = {}

    def begin(
        self, kind: str, trigger_id: str | None, start: Callable[[], Future[Any]], shown: Shown
    ) -> str:
        """Begin an operation; return its trigger id: `trigger_id`, or a new one. An id repeated for
        the same kind begins nothing, so a client may repeat an unanswered request. Raises the
        errors of `start`; answers 429 if too many are under way."""
        with self._lock:
            trigger_id = trigger_id or secrets.token_hex(16)
            if (known := self._by_id.get(trigger_id)) is not None and known.kind == kind:
                return trigger_id
            if sum(not o.result.done() for o in self._by_id.values()) >= AT_ONCE:
                raise HTTPException(
                    429,
                    f"{AT_ONCE} operations are under way already; poll them, and ask again later",
                    {"Retry-After": "1"},
                )
            self._by_id[trigger_id] = Operation(kind, shown, start())
            if len(self._by_id) > KEPT:
                del self._by_id[next(id_ for id_, o in self._by_id.items() if o.result.done())]
            return trigger_id

    def trigger(
        self, kind: str, asked: TriggerRequest, start: Callable[[], Future[Any]], shown: Shown
    ) -> TriggerResponse:
        """Do as `begin`, for a request; answers 409 if `start` refuses the operation."""
        try:
            return TriggerResponse(request_id=self.begin(kind, asked.triggerId, start, shown))
        except UserError as error:
            raise HTTPException(409, str(error)) from None

    def answer(self, kind: str, trigger_id: str) -> dict[str, Any]:
        """Return the answer about an operation; 404 if it is unknown."""
        if (operation := self.find(kind, trigger_id)) is None:
            raise HTTPException(404, f"There is no {kind} with the trigger id {trigger_id}")
        return operation.answer()

    def find(self, kind: str, trigger_id: str) -> Operation | None:
        """Return an operation of this kind; None if it is unknown or forgotten."""
        with self._lock:
            operation = self._by_id.get(trigger_id)
        return operation if operation is not None and operation.kind == kind else None

    def are_waited_for(self) -> bool:
        """Whether a client is still to be told an operation's outcome."""
        with self._lock:
            return any(operation.is_waited_for() for operation in self._by_id.values())


def beside(work: Callable[[], T]) -> Future[T]:
    """Begin `work` on a thread of its own; return its result to come."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="seamark-rest-work", daemon=True).start()
    return answer

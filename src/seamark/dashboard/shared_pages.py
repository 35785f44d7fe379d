"""Values made once for all browsers; and their sending, packed, to a browser without them."""

import gzip
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

from fastapi import Response
from pydantic import BaseModel
from starlette.datastructures import Headers

from seamark.model.redaction import Redactor
from seamark.rest.guard import App, Message, Receive, Send

T = TypeVar("T")

FRESH_S = 0.9
"""How long a value is handed out again: browsers ask once a second."""
REST = 4
"""A value slow to make is handed out for this many times its making time …"""
STALE_S = 10.0
"""… but no longer than this."""
KEPT = 1000
LEAST_ZIPPED_BYTES = 1000
_HIDE = Redactor(()).everywhere


class Page:
    """One answer: its bytes, and their ETag, by which a browser recognizes them."""

    def __init__(self, body: bytes, status: int = 200) -> None:
        self.body = body
        self.status = status
        self.made_s = time.monotonic()

    @staticmethod
    def of(value: Any, status: int = 200) -> "Page":
        """Return `value` as JSON, with suspected secrets in its texts hidden."""
        if isinstance(value, BaseModel):
            value = value.model_dump(by_alias=True, mode="json")
        return Page.of_figures(_HIDE(value), status)

    @staticmethod
    def of_figures(value: Any, status: int = 200) -> "Page":
        """Return `value` as JSON; it must hold no text but its own names."""
        return Page(json.dumps(value, separators=(",", ":")).encode(), status)

    @staticmethod
    def problem(status: int, why: str) -> "Page":
        """Return why a request was not answered, in the form of drivers."""
        return Page.of({"errors": [why]}, status)

    @cached_property
    def etag(self) -> str:
        """The value of its ETag header."""
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'

    @cached_property
    def zipped(self) -> bytes:
        """The body as gzip."""
        return gzip.compress(self.body, 4)


class _Slot(Generic[T]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: list[T] = []
        self.begun_s = 0.0
        self.until = 0.0


class Shared(Generic[T]):
    """Values by key; each is made again when asked for after a while. Safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, _Slot[T]] = OrderedDict()

    def fresh(self, key: str) -> T | None:
        """Return the value if it need not be made again. Never waits."""
        slot = self._slots.get(key)
        return slot.made[0] if slot is not None and time.monotonic() < slot.until else None

    def get(self, key: str, make: Callable[[], T], since_s: float = 0.0) -> T:
        """Return the value. `make` is called unless the value is fresh and was begun at `since_s`
        (monotonic) or later. Callers meanwhile wait and get the same value. An error of `make` is
        raised, and `make` is called again next time."""
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            while len(self._slots) > KEPT:
                self._slots.popitem(last=False)
        with slot.lock:
            if not slot.made or time.monotonic() >= slot.until or slot.begun_s < since_s:
                begun_s = time.monotonic()
                slot.made = [make()]
                slot.begun_s = begun_s
                took_s = time.monotonic() - begun_s
                slot.until = time.monotonic() + min(max(FRESH_S, REST * took_s), STALE_S)
            return slot.made[0]


class ReadyPages:
    """ASGI middleware: answers requests for a page made for another browser a moment ago, most of
    all requests, before the search through the routes, the greatest part of their cost.

    fresh: returns the page of a path with its query, or None if it is not ready.
    """

    def __init__(self, app: App, fresh: Callable[[str], Page | None]) -> None:
        self._app = app
        self._fresh = fresh

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and scope["method"] == "GET":
            query = scope["query_string"].decode("latin-1")
            page = self._fresh(f"{scope['path']}?{query}" if query else scope["path"])
            if page is not None:
                await respond(Headers(scope=scope), page)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def respond(asked: Headers, page: Page, kind: str = "application/json") -> Response:
    """Return the answer to a request with these headers."""
    headers = {"ETag": page.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if page.status == 200 and asked.get("if-none-match") == page.etag:
        return Response(status_code=304, headers=headers)
    body = page.body
    if len(body) >= LEAST_ZIPPED_BYTES and "gzip" in asked.get("accept-encoding", ""):
        body = page.zipped
        headers["Content-Encoding"] = "gzip"
    return Response(body, page.status, headers, media_type=kind)

"""What every request meets first: a look at its host, at its size, at how many there are.

- While the server listens on the loopback address, the ``Host`` header must name it, so that a
  page from elsewhere cannot reach it under a name of its own (DNS rebinding). No answer allows
  another origin to read it (CORS), and a preflight gets none.
- A body has at most 64 kB, a URL 8 kB, the headers 16 kB; a client has so many requests a second
  (`RestConfig`), all of them so much work at once: the job's own threads run in this process.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi.responses import JSONResponse

from tidemark.api.rest_config import RestConfig

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

MOST_BODY_BYTES = 64 * 1024
MOST_URL_BYTES = 8 * 1024
MOST_HEADER_BYTES = 16 * 1024
AT_ONCE = 4
BURST_S = 6.0
"""A client that was silent so long may use up all that it has not asked meanwhile."""
CLIENTS = 1024
_LOOPBACK = re.compile(rb"(127(\.\d{1,3}){3}|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
]


class RequestRates:
    """A token bucket for each client."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Note a request; return 0, or in how many seconds the client may ask again."""
        now, full = self._clock(), self._per_second * BURST_S
        left, at = self._buckets.pop(client, (full, now))
        left = min(left + (now - at) * self._per_second, full)
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_second


class Protection:
    """ASGI middleware around the REST interface."""

    def __init__(self, app: App, config: RestConfig) -> None:
        self._app = app
        self._config = config
        self._rates = RequestRates(config.requests_per_second)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)
        if refusal is None:
            body = await _read(receive, headers)
            if body is not None:
                async with self._slots:
                    await self._app(scope, _replay(body, receive), with_headers)
                return
            refusal = _refuse(413, f"a body has at most {MOST_BODY_BYTES} bytes here")
        await refusal(scope, receive, with_headers)

    def _refusal(self, scope: Message, headers: dict[bytes, bytes]) -> JSONResponse | None:
        if self._config.is_loopback and not _LOOPBACK.fullmatch(headers.get(b"host", b"")):
            return _refuse(421, "this driver answers on the loopback address only (Host header)")
        if len(scope["raw_path"]) + len(scope["query_string"]) > MOST_URL_BYTES:
            return _refuse(414, f"a URL has at most {MOST_URL_BYTES} bytes here")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
            return _refuse(431, f"headers have at most {MOST_HEADER_BYTES} bytes here, together")
        client = (scope.get("client") or ("",))[0]
        wait_s = self._rates.wait_s(client)
        if wait_s > 0:
            return _refuse(
                429,
                f"more than {self._config.requests_per_second} requests a second from {client}",
                {"Retry-After": str(max(round(wait_s), 1))},
            )
        return None


async def _read(receive: Receive, headers: dict[bytes, bytes]) -> bytes | None:
    """Return the body; None if it is too large."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES:
        return None
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message["type"] == "http.request" and message.get("more_body", False)
        if len(body) > MOST_BODY_BYTES:
            return None
    return body


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def receive_again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _refuse(status: int, why: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"errors": [why]}, status, headers)

"""Who may do what with the dashboard. It listens on the loopback address only.

- Whoever is on this machine may read, from a page of the dashboard's own: the `Host` header must
  name a loopback address, so that a foreign page cannot reach it under a name of its own (DNS
  rebinding), and no answer allows another origin to read it (CORS).
- Whatever changes a job needs the dashboard's token, as a bearer. A browser does not send it by
  itself, so a foreign page cannot either.
- The page may load only what this server serves, and runs no inline script (CSP).
"""

from __future__ import annotations

import hmac
import re

from fastapi.responses import JSONResponse

from tidemark.dashboard.answers import Asgi, Message, Receive, Send

MOST_BODY_BYTES = 4096
_LOOPBACK = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def allows(authorization: str | None, token: str) -> bool:
    """Whether the value of an ``Authorization`` header is this token, as a bearer's."""
    scheme, _, given = (authorization or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode(), token.encode()
    )


class Protection:
    """ASGI middleware: refuses foreign hosts and large bodies, adds the headers above."""

    def __init__(self, app: Asgi) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        left = MOST_BODY_BYTES

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise _TooLargeError
            return message

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
            await send(message)

        refusal = None
        length = headers.get(b"content-length", b"0")
        if not _LOOPBACK.fullmatch(headers.get(b"host", b"")):
            refusal = _refuse(421, "this dashboard answers on the loopback address only")
        elif not length.isdigit() or int(length) > MOST_BODY_BYTES:
            refusal = _refuse(413, f"a body has at most {MOST_BODY_BYTES} bytes here")
        if refusal is not None:
            await refusal(scope, receive, guarded)
            return
        try:
            await self._app(scope, bounded, guarded)
        except _TooLargeError:
            too_large = _refuse(413, f"a body has at most {MOST_BODY_BYTES} bytes here")
            await too_large(scope, receive, guarded)


class _TooLargeError(Exception):
    """A body without a length has turned out too large."""


def _refuse(status: int, why: str) -> JSONResponse:
    return JSONResponse({"errors": [why]}, status)

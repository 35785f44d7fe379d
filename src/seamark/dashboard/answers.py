"""Sends pages to browsers: packed, and only pages new to the browser.

Most requests are for a page made for another browser a moment ago. `ReadyPages` answers them before
the search through the routes, the greatest part of such a request's cost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fastapi import Response
from starlette.datastructures import Headers

from seamark.dashboard.shared_pages import Page

LEAST_ZIPPED_BYTES = 1000

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]


class ReadyPages:
    """ASGI middleware; `fresh` returns the page of a path with its query, or None if it is not
    ready."""

    def __init__(self, app: Asgi, fresh: Callable[[str], Page | None]) -> None:
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

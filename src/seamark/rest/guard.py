"""The guard around every served application: it limits the requests worked on at once, and keeps no
place for a slow client. Holders of the token have places of their own.

An answer is made in memory before it is sent, so a client not reading it holds no place.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, ClassVar

from fastapi.responses import JSONResponse

from seamark.model.redaction import redact
from seamark.rest import connections
from seamark.rest.connections import Connections

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Guard:
    """ASGI middleware. Works on `at_once` requests of token holders at once, and on as many of
    others. `holds` tells a holder by the value of the ``Authorization`` header. A body has at most
    `most_body` bytes. Every answer gets `headers`."""

    at_once: ClassVar[int]
    most_body: ClassVar[int]
    headers: ClassVar[Mapping[str, str]]

    def __init__(
        self, app: App, connections: Connections, holds: Callable[[str | None], bool]
    ) -> None:
        self._app = app
        self._connections = connections
        self._holds = holds
        self._headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        self._places = {holder: asyncio.Semaphore(self.at_once) for holder in (True, False)}

    def is_holder(self, scope: Message, headers: dict[bytes, bytes]) -> bool:
        """Whether a request is a token holder's."""
        authorization = headers.get(b"authorization")
        return authorization is not None and self._holds(authorization.decode("latin-1"))

    def refusal(
        self, scope: Message, headers: dict[bytes, bytes], client: str
    ) -> JSONResponse | None:
        """Return the refusal of a request; None if it is to be answered. `client` is its address,
        or "" for a holder of the token."""
        raise NotImplementedError

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        connection = self._connections.of(scope)
        if connection is None:
            await _end(receive)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        headers = dict(scope["headers"])
        holder = self.is_holder(scope, headers)
        connection.is_proven |= holder
        answer = self.refusal(scope, headers, "" if holder else connection.origin)
        if answer is None:
            connection.expect(connections.BODY_S)
            body = await self._read(receive, headers)
            connection.work()
            if body:  # JSON, whatever its kind: curl -d calls it a form
                others = [one for one in scope["headers"] if one[0] != b"content-type"]
                scope["headers"] = [*others, (b"content-type", b"application/json")]
            if body is None:
                answer = refuse(413, f"a body has at most {self.most_body} bytes here")
        made: list[Message] = []
        try:
            if answer is not None:
                await answer(scope, receive, _collect(made))
            else:
                async with self._places[holder]:
                    if self._connections.of(scope) is connection:
                        await self._app(scope, _replay(body or b"", receive), _collect(made))
                    else:
                        await _end(receive)
        except Exception as error:  # uvicorn would log it, with its secrets
            trace = redact("".join(traceback.format_exception(error)))
            log.error("%s %s failed:\n%s", scope["method"], scope["path"], trace)
            made.clear()
            why = f"Internal server error ({type(error).__name__}); the server's log has more"
            await refuse(500, why)(scope, receive, _collect(made))
        finally:
            connection.expect(connections.ANSWER_S)
        for message in made:
            await with_headers(message)
        connection.rest()

    async def _read(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes | None:
        """Return the body; None if it is too large."""
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.most_body:
            return None
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message["type"] == "http.request" and message.get("more_body", False)
            if len(body) > self.most_body:
                return None
        return body


def refuse(status: int, why: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return a refusal in the common form."""
    return JSONResponse({"errors": [why]}, status, headers)


async def _end(receive: Receive) -> None:
    """Wait until an ended connection is gone: nobody wants its answer."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _collect(made: list[Message]) -> Send:
    async def collect(message: Message) -> None:
        made.append(message)

    return collect


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def receive_again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again

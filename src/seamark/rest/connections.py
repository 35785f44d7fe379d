"""The connections of a server: none can hold the server up, however slow, silent or many they are.

A connection waits for its client (for the headers, for the body, until the answer is read), or its
client waits for the server. While it waits for its client it has a deadline. If there are too many
connections, the client with the most loses its oldest waiting one. `Guard` (guard.py) tells each
connection what it waits for.
"""

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Mapping
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 5.0
BODY_S = 5.0
ANSWER_S = 10.0
MOST_HEADER_BYTES = 16 * 1024
ACCEPTED_AT_ONCE = 32
"""Connections accepted before the existing ones get their turn. A connection takes four turns until
its request is known: the connections accepted meanwhile must not push it out."""
QUEUED = 1024
THIS_MACHINE = "this machine"


class Listener(socket.socket):
    """A listening socket with a queue in the kernel longer than ACCEPTED_AT_ONCE. The event loop
    would make them equal, and a client that finds the queue full tries again a second later."""

    def listen(self, backlog: int = 0, /) -> None:
        """Listen with QUEUED places, whatever backlog the event loop wants."""
        super().listen(QUEUED)


class Connections:
    """All connections of one server, at most `most`. Belongs to the thread of its event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[tuple[str, int] | None, Connection] = {}

    def of(self, scope: Mapping[str, Any]) -> "Connection | None":
        """Return the connection of an ASGI scope; None if it has ended."""
        return self._all.get(scope["client"])

    def add(self, new: "Connection") -> None:
        """Called when a client has connected; ends a connection if there are too many."""
        self._all[new.client] = new
        if len(self._all) > self._most:
            one_too_many = self._one_too_many(new)
            self.remove(one_too_many)
            one_too_many.transport.abort()

    def remove(self, ended: "Connection") -> None:
        """Called when a connection has ended."""
        if self._all.get(ended.client) is ended:
            del self._all[ended.client]

    def _one_too_many(self, new: "Connection") -> "Connection":
        """Choose the oldest connection of the client with the most: among waiting ones, if any. A
        client proven by the token keeps its connections; if all others are proven, `new` goes."""
        unproven = [one for one in self._all.values() if not one.is_proven and one is not new]
        if not unproven:
            return new
        candidates = [one for one in unproven if one.waits] or unproven
        origin = Counter(one.origin for one in candidates).most_common(1)[0][0]
        return next(one for one in candidates if one.origin == origin)


class Connection(H11Protocol):
    """One connection, with a deadline while it waits for its client."""

    table: Connections
    """The connections of its server."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the headers of a first request."""
        super().connection_made(transport)
        self.is_proven = False
        self.waits = True
        self._rests = False
        self.origin = _origin(self.client[0] if self.client else "")
        self._timer: asyncio.TimerHandle | None = None
        self.expect(HEADERS_S)
        self.table.add(self)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of the headers when a further request begins."""
        if self._rests:
            self._rests = False
            self.expect(HEADERS_S)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.work()
        self.table.remove(self)
        super().connection_lost(exc)

    def expect(self, seconds: float) -> None:
        """Wait `seconds` for the client, then end the connection."""
        self.work()
        self.waits = True
        self._timer = self.loop.call_later(seconds, self._end_if_late)

    def work(self) -> None:
        """Stop waiting for the client: it waits for the server now."""
        self.waits = self._rests = False
        if self._timer is not None:
            self._timer.cancel()

    def rest(self) -> None:
        """Called when an answer is written; the deadline holds until its client has read it."""
        self.waits = self._rests = True

    def _end_if_late(self) -> None:
        if not self._rests or self.transport.get_write_buffer_size():
            self.transport.abort()


def _origin(host: str) -> str:
    """Return the client's address; THIS_MACHINE for every loopback address."""
    try:
        return THIS_MACHINE if ipaddress.ip_address(host).is_loopback else host
    except ValueError:
        return host


def guarded_server(
    app: Any, connections: Connections, keep_alive_s: int, **settings: Any
) -> uvicorn.Server:
    """Return a server of `app`, a `Guard` over `connections`. A connection without a request ends
    after `keep_alive_s`; `settings` are uvicorn's."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=type("GuardedConnection", (Connection,), {"table": connections}),
            h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            timeout_keep_alive=keep_alive_s,
            loop="asyncio",
            backlog=ACCEPTED_AT_ONCE,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the client is the connected peer, whatever its headers say
            lifespan="off",
            ws="none",
            **settings,
        )
    )

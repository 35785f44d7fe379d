"""The connections of a server, none of which can hold it up: however slow, silent or many they are.

A connection waits for its client (for the headers, for the body, until the answer is read), or its
client waits for us. While it waits for its client it has a deadline; and when there are too many,
the one that has waited longest is ended. `Guard` (guard.py) tells each what it waits for.
"""

from __future__ import annotations

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
"""So many connections are accepted before those that there are get their turn. A connection takes
four turns until its request is known: all that come meanwhile must not make one too many of it."""
QUEUED = 1024
THIS_MACHINE = "this machine"


class Listener(socket.socket):
    """A socket to listen on, whose queue in the kernel is longer than what is accepted at once: the
    event loop makes them the same, and a client that finds the queue full tries again a second
    later."""

    def listen(self, backlog: int = 0, /) -> None:
        """Listen, whatever the event loop says of the queue."""
        super().listen(QUEUED)


class Connections:
    """All connections of one server, at most `most`. Belongs to the thread of its event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[tuple[str, int] | None, Connection] = {}

    def of(self, scope: Mapping[str, Any]) -> Connection | None:
        """Return the connection of an ASGI scope; None if it has ended."""
        return self._all.get(scope["client"])

    def add(self, new: Connection) -> None:
        """Called when a client has connected; ends another connection if there are too many."""
        self._all[new.client] = new
        if len(self._all) > self._most:
            one_too_many = self._one_too_many(new)
            self.remove(one_too_many)
            one_too_many.transport.abort()

    def remove(self, ended: Connection) -> None:
        """Called when a connection has ended."""
        if self._all.get(ended.client) is ended:
            del self._all[ended.client]

    def _one_too_many(self, new: Connection) -> Connection:
        """Choose the oldest of the client that has most: of those that wait, if there are any. A
        client that has shown the token keeps its connections."""
        unproven = [one for one in self._all.values() if not one.is_proven and one is not new]
        if not unproven:
            return new
        found = [one for one in unproven if one.waits] or unproven
        origin = Counter(one.origin for one in found).most_common(1)[0][0]
        return next(one for one in found if one.origin == origin)


class Connection(H11Protocol):
    """One connection, with a deadline while it waits for its client."""

    table: Connections
    """Of its server."""

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
        """Forget it."""
        self.work()
        self.table.remove(self)
        super().connection_lost(exc)

    def expect(self, seconds: float) -> None:
        """Wait so long for the client; then end the connection."""
        self.work()
        self.waits = True
        self._timer = self.loop.call_later(seconds, self._end_if_late)

    def work(self) -> None:
        """Wait for the client no longer: it waits for us."""
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
    """Return the client's address; one for all of this machine, which has many."""
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
            proxy_headers=False,  # who asks is who is connected, whatever he says
            lifespan="off",
            ws="none",
            **settings,
        )
    )

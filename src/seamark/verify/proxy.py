"""A TCP proxy that harms the line: it cuts it before a request or a reply, delays, drops or halves
replies, refuses lines.

A request cut off has not reached the server. If a reply is cut off, the server has executed the
request; its sender sees a broken line and cannot know.
"""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Literal

Side = Literal["request", "reply"]
_END_TRANSACTION = (26).to_bytes(2, "big")
"""Kafka's number of the request that commits or aborts a transaction."""


def _commits(data: bytes) -> bool:
    """Tell whether data begins with a request that ends a transaction of Kafka's, or is one of
    SQL that commits."""
    return data[4:6] == _END_TRANSACTION or b"COMMIT" in data


class CuttingProxy:
    """A context manager: listens on `port` of 127.0.0.1 and passes everything on to a server. When
    told to, it cuts one connection, the first to get there; it passes on new ones. `target` may be
    set later, before the first connection."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cuts = 0
        """How many lines it has cut."""
        self.held = 0
        """How many commits it has held back."""
        self.delay_s = 0.0
        """How long it holds each reply back."""
        self.drops = False
        """Whether replies vanish; the line stays open."""
        self.halves = False
        """Whether each line is cut in the middle of its next reply."""
        self.resets = False
        """Whether each new line is cut at once."""
        self.hold_s = 0.0
        """How long it holds the next commit back; its line stands still, the others go on."""
        self._lock = threading.Lock()
        self._armed: tuple[Side, int] | None = None
        self._text: bytes | None = None
        self._open: set[socket.socket] = set()

    def cut_at(self, side: Side, nth: int) -> None:
        """Cut the line instead of passing on the nth request or reply from now on, from 1. Data
        received at once counts as one."""
        with self._lock:
            self._armed = (side, nth)

    def lose_reply_to(self, text: bytes) -> None:
        """Cut the line instead of passing on the reply to the next request with `text` in it."""
        with self._lock:
            self._text = text

    def cut_all(self) -> None:
        """Cut every open line now."""
        with self._lock:
            ends = list(self._open)
        self.cuts += len(ends) // 2
        for end in ends:
            self._close(end)

    @contextlib.contextmanager
    def outage(self, how: Literal["drops", "halves", "resets"]) -> Iterator[None]:
        """Harm every line, open or new, for the time of the context."""
        setattr(self, how, True)
        if how == "resets":
            self.cut_all()
        try:
            yield
        finally:
            setattr(self, how, False)

    def __enter__(self) -> "CuttingProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            ends = [self._listener, *self._open]
        for end in ends:
            self._close(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                if self.resets:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.close()
                    continue
                try:
                    server = socket.create_connection(self.target)
                except OSError:  # the server is away
                    self._close(client)
                    continue
                with self._lock:
                    self._open |= {client, server}
                losing = threading.Event()
                for pass_on in (self._requests, self._replies):
                    threading.Thread(
                        target=pass_on, args=(client, server, losing), daemon=True
                    ).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                with self._lock:
                    if self._text is not None and self._text in data:
                        self._text = None
                        losing.set()
                if self._cuts("request"):
                    break
                if self.hold_s and _commits(data):
                    self.held, hold_s, self.hold_s = self.held + 1, self.hold_s, 0.0
                    time.sleep(hold_s)
                server.sendall(data)
        if not losing.is_set():
            self._close(server)
            self._close(client)

    def _replies(
        self, client: socket.socket, server: socket.socket, losing: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if losing.is_set():
                    self.cuts += 1
                    break
                if self._cuts("reply"):
                    break
                if self.drops:
                    # Half a conversation is worse than none: what follows would be misread.
                    losing.set()
                    while self.drops:
                        time.sleep(0.05)
                    break
                if self.delay_s:
                    time.sleep(self.delay_s)
                if self.halves:
                    client.sendall(data[: len(data) // 2])
                    break
                client.sendall(data)
        self._close(client)
        self._close(server)

    def _cuts(self, side: Side) -> bool:
        with self._lock:
            if self._armed is None or self._armed[0] != side:
                return False
            left = self._armed[1] - 1
            self._armed = (side, left) if left else None
            self.cuts += not left
            return not left

    def _close(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

"""A TCP proxy that loses a reply: what was asked has reached the server, and nobody is told.

It cuts the connection when the server has answered a message that holds a given text, so that the
text has been executed and its sender sees a broken line.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class LosingProxy:
    """A context manager: listens on `port` and passes everything on to a port of this machine."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.lost = 0
        """How many replies it has lost."""
        self._text: bytes | None = None
        self._open: list[socket.socket] = []

    def lose_reply_to(self, text: bytes) -> None:
        """Lose the reply to the next message with `text` in it, once."""
        self._text = text

    def __enter__(self) -> LosingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for end in [self._listener, *self._open]:
            _cut(end)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._open += [client, server]
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        losing = threading.Event()

        def replies() -> None:
            with contextlib.suppress(OSError):
                while data := server.recv(65536):
                    if losing.is_set():
                        self.lost += 1
                        break
                    client.sendall(data)
            _cut(client)
            _cut(server)

        threading.Thread(target=replies, daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._text is not None and self._text in data:
                    self._text = None
                    losing.set()
                server.sendall(data)
        if not losing.is_set():
            _cut(server)


def _cut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()

"""A server of the tests' own in one JVM: killed, stopped, started again on its data and port."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

from seamark.dev.java_server import JavaServer, LocalServers, free_ports


class OneServer(LocalServers):
    """A context manager. `start` makes `_server`; everything of it lies in `_directory`."""

    def __init__(self, name: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=f"seamark-{name}-"))
        (self.port,) = free_ports(1)
        self._server: JavaServer | None = None

    @property
    def server(self) -> JavaServer:
        """The server, dead or alive."""
        assert self._server is not None
        return self._server

    @property
    def pid(self) -> int:
        """The server's process id, dead or alive."""
        return self.server.pid

    def kill(self) -> None:
        """End the server with SIGKILL; its data stay."""
        self.server.kill()

    def send(self, number: signal.Signals) -> None:
        """Send the server a signal. Between SIGSTOP and SIGCONT it hangs."""
        self.server.send(number)

    def restart(self) -> None:
        """Start the server on its old data and port; return when it answers."""
        self.server.start()

    def stop(self) -> None:
        """Kill the server and remove its data."""
        if self._server is not None:
            self._server.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _begin(self, server: JavaServer) -> None:
        """Start it for the first time."""
        self._server = server
        try:
            server.start()
        except BaseException:
            self.stop()
            raise

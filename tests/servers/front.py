"""`store_front.py` as a process beside the server that it stands in front of."""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path

from seamark.dev.server_process import ServerProcess
from tests.servers import store_front


class StoreFront(ServerProcess):
    """In front of the server on this port."""

    def __init__(self, behind: int) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="sm-front-")), {})
        self._behind = behind

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:<port>``."""
        return f"http://127.0.0.1:{self.port}"

    def _command(self) -> list[object]:
        return [sys.executable, store_front.__file__, self.port, self._behind]

    def _ask(self) -> None:
        socket.create_connection(("127.0.0.1", self.port), timeout=5).close()

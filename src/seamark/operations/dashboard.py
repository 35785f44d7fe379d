"""`seamark dashboard`: serve the jobs of a storage to browsers on this machine."""

from __future__ import annotations

from collections.abc import Callable

from seamark.dashboard.server import run_dashboard
from seamark.operations.storage import storage_of


def dashboard(storage: str | None, port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `storage` as in `seamark checkpoints`; `port` 0 is any free
    one; `announce` gets the address. Raises UserError."""
    run_dashboard(storage_of("dashboard", storage), port, announce)

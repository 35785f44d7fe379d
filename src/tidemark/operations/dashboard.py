"""`tidemark dashboard`: serve the jobs of a storage to browsers on this machine."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.dashboard.server import run_dashboard
from tidemark.operations.storage import storage_of


def dashboard(storage: str | None, port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `storage` as in `tidemark checkpoints`; `port` 0 is any free
    one; `announce` gets the address. Raises UserError."""
    run_dashboard(storage_of("dashboard", storage), port, announce)

"""Where the tests' servers keep their data."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")


def server_directory(prefix: str) -> Path:
    """Make a directory: in memory where there is room, else on the disk. It survives kill -9 of a
    process just the same, and a server that syncs each commit need not wait."""
    roomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2**30
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if roomy else None))

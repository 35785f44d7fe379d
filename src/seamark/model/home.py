"""The directory of a user's own files: tokens, logs, checkpoints of jobs that name no storage; and
directories for one program."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

HOME_VARIABLE = "SEAMARK_HOME"
"""Environment: this directory, instead of ``~/.seamark``."""


def seamark_home() -> Path:
    """Return the directory; it need not exist."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".seamark").absolute()


def temporary_directory(prefix: str = "seamark-") -> Path:
    """Make a directory that is deleted when this process ends, and not when a fork of it does."""
    directory, owner = Path(tempfile.mkdtemp(prefix=prefix)), os.getpid()

    @atexit.register
    def delete() -> None:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)

    return directory

"""The directory of a user's own files: tokens, logs, checkpoints of jobs that name no storage."""

import os
from pathlib import Path

HOME_VARIABLE = "SEAMARK_HOME"
"""Environment: this directory, instead of ``~/.seamark``."""


def seamark_home() -> Path:
    """Return the directory; it need not exist."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".seamark").absolute()

"""Tells the process that started this driver where its job answers (`seamark run -d`).

The starter names a file in the environment and waits for it: it cannot know which storage and name
the program gives its job.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path

from seamark.checkpoint.executions import ExecutionStart

log = logging.getLogger(__name__)

ANNOUNCE_VARIABLE = "SEAMARK_ANNOUNCE"
"""Environment: the file to make once the job runs: `ExecutionStart` and ``directory`` as JSON."""


def announce(start: ExecutionStart, directory: str) -> None:
    """Make the file that the environment names, if it names one. Called when the job's first run
    has started; a second job of the same program is not announced."""
    path = os.environ.pop(ANNOUNCE_VARIABLE, None)
    if path is None:
        return
    aside = Path(f"{path}.tmp")
    try:
        aside.write_text(json.dumps({**asdict(start), "directory": directory}), encoding="utf-8")
        aside.replace(path)
    except OSError as error:  # nobody waits any more
        log.info("the job could not be announced at %s: %s", path, error)

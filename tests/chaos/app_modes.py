"""Files into two SQLite databases, one file an epoch, in the given mode.

A program for a test to kill, and a function for the test to go on by itself.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import seamark as sm


def run(options: dict[str, Any]) -> None:
    """Run the job to the end of its files."""
    job = sm.Job("modes", sm.CheckpointConfig(storage=options["storage"], mode=options["mode"]))
    source = sm.FileSource(
        options["input"],
        format="json",
        schema="id BIGINT",
        ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )
    rows = job.source(source, "in")
    job.sink(rows, sm.SQLiteSink(options["first"], table="t"), "first")
    job.sink(rows, sm.SQLiteSink(options["second"], table="t"), "second")
    job.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    run(json.loads(sys.argv[1]))

"""Files over HTTP, one file an epoch, to two endpoints: one keeps its keys, one does not.

A program for a test to kill, and a function for the test to go on by itself.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import seamark as sm


def run(options: dict[str, Any], name: str = "sender", restore: str | None = None) -> None:
    """Run the job to the end of its files."""
    job = sm.Job(name, sm.CheckpointConfig(storage=options["storage"]))
    source = sm.FileSource(
        options["input"],
        format="json",
        schema="number BIGINT",
        ending="latest",
        options={"maxFilesPerTrigger": "1"},
    )
    rows = job.source(source, "in")
    kept = sm.WriteAheadSink.http(f"{options['kept']}/rows?keep", idempotent=True)
    job.sink(rows, kept, "kept")
    plain = sm.WriteAheadSink.http(f"{options['plain']}/rows", format="arrow")
    job.sink(rows, plain, "plain")
    job.run(restore)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    run(json.loads(sys.argv[1]))

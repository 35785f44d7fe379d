"""A job behind a slow sink, unaligned; as a program, to be killed: its argument has `home`, and
`name` and `restore` for a restored one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import seamark as sm
from tests.chaos.slow_sink import SlowSQLiteSink


def slow_job(
    home: Path, name: str = "job", ending: Any = "never", database: str | None = None
) -> sm.Job:
    """Copy the ids in the files of `home`/in into the table of a database, slowly."""
    checkpoint = sm.CheckpointConfig(
        storage=str(home / "store"), interval="1h", unaligned=True, aligned_timeout="200ms"
    )
    job = sm.Job(name, checkpoint)
    source = sm.FileSource(str(home / "in"), format="json", schema="id BIGINT", ending=ending)
    rows = job.source(source, "in")
    job.sink(rows, SlowSQLiteSink(str(home / f"{database or name}.db"), table="t"), "out")
    return job


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    made = slow_job(Path(asked["home"]), asked.get("name", "job"), database="job")
    made.run(restore=asked.get("restore"))

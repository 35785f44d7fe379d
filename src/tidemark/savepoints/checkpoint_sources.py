"""The sources of a job's newest complete checkpoint, by uid, without its program.

Spark's offset log knows numbers alone; the uids are those of the checkpoint's statistics.
"""

from __future__ import annotations

from tidemark.checkpoint.spark_files import read_log
from tidemark.checkpoint.statistics_store import StatisticsStore
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.errors import SavepointError
from tidemark.savepoints.record import Source


def sources_of_job(files: CheckpointFiles) -> list[Source]:
    """Return the sources of the job in the directory `files`, with their offsets as of its last
    decided epoch; the job may run. Raises SavepointError if none was ever decided."""
    decided = [int(name) for name in files.list("spark/commits") if name.isdigit()]
    if not decided:
        raise SavepointError(f"job {files.uri}: it has no complete checkpoint yet, so no offsets")
    epoch = max(decided)
    lines = read_log(files, f"spark/offsets/{epoch}")[1:]
    # The figures of the very last epochs are not stored yet, or never were: uids do not change.
    known = next(
        (c for c in StatisticsStore(files).read().history if not c.is_savepoint and c.tasks), None
    )
    uids = [task.uid for task in known.tasks if task.kind == "source"] if known else []
    if len(uids) < len(lines):  # one that stands in the plan twice has the same line twice
        distinct = [line for n, line in enumerate(lines) if line not in lines[:n]]
        lines = distinct if len(distinct) == len(uids) else lines
    if len(uids) != len(lines):
        uids = [f"source-{number}" for number in range(len(lines))]
    return [Source(uid, n, offset) for n, (uid, offset) in enumerate(zip(uids, lines, strict=True))]

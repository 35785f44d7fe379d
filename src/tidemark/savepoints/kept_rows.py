"""The rows that sinks keep in the checkpoint, in savepoints: those of the savepoint's epoch that
are not known to be at their target.

A write-ahead sink's decided rows are nowhere else. `taking.py` asks `save_rows` for what is not
committed, at the end of the export; `job_restore.py` puts the rows into the new job's directory,
where its recovery sends them, with the first job's token. docs/FORMAT.md says where they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from tidemark.checkpoint.store import CheckpointStore, SinkEpoch
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.contracts.row_files import ROWS, sink_directory
from tidemark.model.errors import DamagedCheckpointError, SavepointError
from tidemark.runtime.checkpoint_trigger import SINK_PATIENCE_S
from tidemark.runtime.hadoop_files import open_files
from tidemark.runtime.query import StreamRun
from tidemark.savepoints.exporting import Uncommitted
from tidemark.savepoints.file_copies import copier
from tidemark.savepoints.record import Savepoint

TRIES = 10
"""So often a file of rows may be gone when it is copied: its sink was renaming or deleting it."""


def save_rows(
    spark: SparkSession, run: StreamRun, epoch: int, files: CheckpointFiles
) -> Uncommitted:
    """Return the transactions of a sealed epoch of this run that some sink may not have committed
    yet, by the sink's uid, after SINK_PATIENCE_S; and what was copied of their rows into the
    savepoint `files`. The rows of a spool stay where they are.

    Raises SavepointError if the rows cannot be copied.
    """
    coordinator = run.coordinator
    job = open_files(spark, run.uri, make=False)
    copy = copier(job, files, lambda: spark)
    for _ in range(TRIES):
        parts: dict[str, SinkEpoch] = {}
        copied: dict[str, tuple[int, int]] = {}
        try:
            for uid, part in coordinator.uncommitted_of(epoch, SINK_PATIENCE_S).items():
                parts[uid], rows = coordinator.unsent_rows(uid, part)
                copied |= {path: copy(now, path) for path, now in rows.items()}
        except FileNotFoundError:
            files.delete(ROWS)
            continue
        if copied and not coordinator.uncommitted_of(epoch, 0.0):  # committed meanwhile
            files.delete(ROWS)
            return {}, {}
        return parts, copied
    raise SavepointError(
        f"savepoint of epoch {epoch}: the rows that its sinks keep in {run.uri}/{ROWS} are "
        "missing; see docs/operations/damaged-checkpoint.md"
    )


def put_back(
    spark: SparkSession, savepoint: Savepoint, target: CheckpointStore, uids: Iterable[str]
) -> None:
    """Copy the rows of these sinks into the directory of a new job. It may be called again. Raises
    DamagedCheckpointError if a file is not as it was written."""
    source = open_files(spark, savepoint.uri, make=False)
    copy = copier(source, target.files, lambda: spark)
    for path, known in rows_of(savepoint, uids).items():
        target.files.delete(path)  # of a restore that was cut off
        if copy(path) != tuple(known):
            raise DamagedCheckpointError(
                f"savepoint {savepoint.uri} is damaged: {path} is not as it was written",
                problems=(f"{savepoint.uri}/{path}",),
            )


def rows_of(savepoint: Savepoint, uids: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    """Return the files with the rows of these sinks, as `Savepoint.files` has them."""
    places = tuple(f"{sink_directory(uid)}/" for uid in uids)
    return {path: known for path, known in savepoint.files.items() if path.startswith(places)}

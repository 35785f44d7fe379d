"""The rows that sinks keep in the checkpoint, in savepoints: those of the savepoint's epoch that
are not known to be at their target.

A write-ahead sink's decided rows are nowhere else. `take/running.py` asks `save_rows` for what is
not committed, at the end of the export; `restore/write.py` puts the rows into the new job's
directory, where its recovery sends them, with the first job's token. docs/FORMAT.md says where they
lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession

from seamark.checkpoint.store import CheckpointStore
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.contracts.spool import SPOOLS, spool_directory
from seamark.model.errors import DamagedCheckpointError, SavepointError
from seamark.runtime.checkpoint_trigger import SINK_PATIENCE_S
from seamark.runtime.hadoop_files import open_files
from seamark.runtime.query import StreamRun
from seamark.savepoints.record import Savepoint
from seamark.savepoints.state.copies import copier
from seamark.savepoints.take.export import Uncommitted
from seamark.savepoints.take.uncommitted import ByEpoch

TRIES = 10
"""So often a sink may get further while its rows are copied."""


def save_rows(
    spark: SparkSession, run: StreamRun, epoch: int, files: CheckpointFiles
) -> Uncommitted:
    """Return the transactions of a sealed epoch of this run, and of those before it, that some sink
    may not have committed yet, after SINK_PATIENCE_S; and what was copied of their rows into the
    savepoint `files`. The rows of a spool stay where they are.

    Raises SavepointError if the rows cannot be copied.
    """
    job = open_files(spark, run.uri, make=False)
    copy = copier(job, files, lambda: spark)
    waiting, rows = _look(run, epoch, SINK_PATIENCE_S)
    for _ in range(TRIES):
        try:
            copied = {path: copy(now, path) for path, now in rows.items()}
        except FileNotFoundError:
            copied = {}
        before = waiting
        waiting, rows = _look(run, epoch, 0.0)
        if waiting == before and copied.keys() == rows.keys():
            return waiting, copied
        files.delete(SPOOLS)  # some sink got further meanwhile
    raise SavepointError(
        f"savepoint of epoch {epoch}: the rows that its sinks keep in {run.uri}/{SPOOLS} cannot be "
        "copied: they are missing. See docs/operations/damaged-checkpoint.md"
    )


def _look(run: StreamRun, epoch: int, patience_s: float) -> tuple[ByEpoch, dict[str, str]]:
    """Return what is not committed, and where the rows of it are that sinks keep, by the path that
    their committable names."""
    parts: ByEpoch = {}
    rows: dict[str, str] = {}
    for number, of_epoch in run.coordinator.uncommitted_up_to(epoch, patience_s).items():
        parts[number] = {}
        for uid, part in of_epoch.items():
            parts[number][uid], kept = run.coordinator.unsent_rows(uid, part)
            rows |= kept
    return parts, rows


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
    places = tuple(f"{spool_directory(uid)}/" for uid in uids)
    return {path: known for path, known in savepoint.files.items() if path.startswith(places)}

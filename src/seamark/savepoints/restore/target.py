"""The new job's directory during a restore.

``job.json`` is made last. A directory with it is whole; a directory with only the marker
``restoring.json`` is an interrupted restore. The marker holds every decision of the restore (epoch,
new ids), so a repetition has the very same result.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from seamark.checkpoint.envelope import create_record, read_record
from seamark.checkpoint.inspection import RESTORING
from seamark.checkpoint.sink_epoch import SinkEpoch
from seamark.checkpoint.store import CheckpointStore
from seamark.files import Directory
from seamark.files.location import same_place
from seamark.model.errors import RestoreError

RESTORED_GENERATION = 0
"""The generation in the prepared record of decided transactions that a restore has taken over."""


def is_restored_from(job: CheckpointStore, path: str) -> bool:
    """Return whether this job was restored from `path`."""
    origin = job.read_identity().restored_from
    return origin is not None and same_place(origin["path"], path)


def read_marker(target: CheckpointStore, path: str) -> dict[str, Any] | None:
    """Return the decisions of an interrupted restore; None if this directory is new. Raises
    RestoreError if it holds checkpoint files without a marker, or the restore of another path."""
    if not target.files.exists(RESTORING):
        if target.epochs() or target.generations() or target.latest_planned() >= 0:
            raise RestoreError(
                f"restore: {target.uri} holds checkpoint files already, but no job.json; restore "
                f"{path} under another job name or storage (-D checkpoint.storage=…)"
            )
        return None
    decided = read_record(target.files, "restoring", RESTORING)
    if not same_place(decided["path"], path):
        raise RestoreError(
            f"restore: {target.uri} is a restore of {decided['path']} that was begun and has not "
            f"ended; end it with that path, or delete the directory to restore {path} into it"
        )
    return decided


def write_marker(target: CheckpointStore, decided: Mapping[str, Any]) -> None:
    """Write the decisions of a restore; raises RestoreError if another driver was first."""
    if not create_record(target.files, "restoring", RESTORING, decided):
        raise RestoreError(f"restore: another driver is restoring into {target.uri} at this moment")


def take_over(
    target: CheckpointStore, epoch: int, read: Callable[[], Mapping[str, SinkEpoch]]
) -> None:
    """Store the transactions of another job's epoch, by the sink's uid, for the job in `target`;
    its recovery commits them. A repeated call does not read them again."""
    if not target.files.exists(f"epochs/{epoch}/prepared.{RESTORED_GENERATION}.json"):
        target.write_prepared(epoch, RESTORED_GENERATION, read(), plan=None)


def create(files: Directory, path: str, data: bytes) -> None:
    """Write a file, unless an interrupted restore has written it, with the same bytes."""
    with contextlib.suppress(FileExistsError):
        files.create(path, data)

"""Deletes savepoints, but none that somebody needs; recognises those that were cut off.

`seamark savepoint -d` and the REST interface's disposal call `dispose`. Spark is started only
where the savepoint is not on a local disk.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from seamark.api.config import storage_uri
from seamark.checkpoint.envelope import open_envelope
from seamark.checkpoint.inspection import RESTORING
from seamark.file_systems.location import same_place
from seamark.model.errors import CorruptRecordError, SavepointError, UserError
from seamark.model.job_state import JobState
from seamark.runtime.checkpoint_history import exists, open_storage
from seamark.runtime.registry import find_job
from seamark.savepoints.claims import read_claim
from seamark.savepoints.record import (
    SAVEPOINT,
    SavepointRecord,
    Taking,
    read_savepoint,
    read_taking,
)
from seamark.savepoints.removal import remove_savepoint

log = logging.getLogger(__name__)


def open_savepoint(path: str) -> SavepointRecord:
    """Return what the ``savepoint.json`` at `path` says; raises SavepointError if there is none, or
    it is damaged."""
    uri = storage_uri(path, "savepoint")
    if not exists(uri):
        raise SavepointError(f"{uri}: there is no savepoint here")
    try:
        return read_savepoint(open_storage(uri))
    except CorruptRecordError as error:
        raise SavepointError(str(error)) from None


def dispose(path: str, *, storage: str | None = None, incomplete: bool = False) -> list[str]:
    """Delete a savepoint: the files that its record lists, and those that are written into one.
    Return the other files of its directory, which stay, and the directory with them. `incomplete`
    allows it for one that was cut off while it was written.

    Raises SavepointError, and leaves everything as it is, for what is no savepoint, what a job has
    claimed, what is still being written, and what a job in `storage` (a URI) is being restored
    from.
    """
    uri = storage_uri(path, "savepoint")
    if not exists(uri):
        raise SavepointError(f"{uri}: there is no savepoint here")
    files = open_storage(uri)
    listed: Collection[str] = ()
    if not files.exists(SAVEPOINT) and (taking := read_taking(files)) is not None:
        _require_cut_off(uri, taking, incomplete)
    else:
        listed = open_savepoint(uri).files
    claim = read_claim(files)
    if (
        claim is not None
        and exists(claim.job_directory)
        and open_storage(claim.job_directory).list("")
    ):
        raise SavepointError(
            f"savepoint {uri} is not disposed of: job {claim.job_name!r} ({claim.job_directory}) "
            "has claimed it, and deletes it when its own first checkpoint is complete"
        )
    if storage is not None and (name := _restores_from(storage, uri)) is not None:
        raise SavepointError(
            f"savepoint {uri} is not disposed of: job {name!r} in {storage} is being restored from "
            "it. Let that restore end (run the job again), or delete that job's directory"
        )
    left = remove_savepoint(files, listed)
    if left:
        log.warning("%s stays: %d files in it are not the savepoint's", uri, len(left))
    return left


def _require_cut_off(uri: str, taking: Taking, allowed: bool) -> None:
    """Raise SavepointError if the job that was writing it may still be at it, or nobody said that
    it may be incomplete."""
    begun = f"the savepoint of job {taking.job_name!r}, epoch {taking.epoch}, is not whole"
    storage, _, name = taking.job_directory.rpartition("/")
    try:
        job = find_job(storage, name)
        runs = job.state is JobState.RUNNING and job.started_at < taking.begun_at
    except (UserError, OSError):  # its directory is gone, or out of reach
        runs = False
    if runs:
        raise SavepointError(
            f"{uri}: {begun}, and its driver still runs: it may be writing it. Wait for its end"
        )
    if not allowed:
        raise SavepointError(
            f"{uri}: {begun}: taking it was cut off, and it can never be restored. To delete what "
            "there is of it: seamark savepoint dispose --incomplete PATH"
        )


def _restores_from(storage: str, uri: str) -> str | None:
    """Return a job of the storage whose restore from this savepoint has begun and not ended."""
    if not exists(storage):
        return None
    files = open_storage(storage)
    for name in files.list(""):
        at = f"{name}/{RESTORING}"
        if files.exists(at) and not files.exists(f"{name}/job.json"):
            try:
                found = open_envelope("restoring", files.read(at), f"{storage}/{at}").get("path")
            except (CorruptRecordError, FileNotFoundError):
                continue
            if same_place(found, uri):
                return name
    return None

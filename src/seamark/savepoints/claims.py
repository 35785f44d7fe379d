"""Ownership and deletion of savepoints.

A claimed savepoint belongs to the job restored from it. This job deletes it once its own first
checkpoint is complete; no other job may restore it any more. ``claimed.json`` beside
``savepoint.json`` names the owner (docs/FORMAT.md). A restore writes it before it copies anything,
`restore/from_savepoint.py` and `dispose` refuse a savepoint claimed by another job, and each run of
the job has a `ClaimDisposal`.

`dispose` deletes a savepoint for its user, unless a job needs it. It starts Spark only for a
savepoint that is not on a local disk. Only files of the savepoint are deleted: the user may have
put files of his own beside them, or named a wrong directory.
"""

import logging
import re
import socket
import threading
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.envelope import create_record, load_record, read_record
from seamark.checkpoint.inspection import RESTORING
from seamark.checkpoint.lineages import LINEAGES, job_directory, lineage_directory, lineages_of
from seamark.checkpoint.store import JobIdentity
from seamark.contracts.spool import SPOOLS, parse_path
from seamark.files import Directory, in_threads
from seamark.files.location import same_place, storage_uri
from seamark.jobs.checkpoint_history import exists, open_storage
from seamark.jobs.driver import is_alive
from seamark.jobs.listing import known_lineages
from seamark.jobs.registry import find_job
from seamark.model.errors import (
    CorruptRecordError,
    RestoreError,
    SavepointError,
    SeamarkError,
    UserError,
)
from seamark.model.job_state import OUTSIDE
from seamark.savepoints.record import (
    SAVEPOINT,
    TAKING,
    SavepointRecord,
    Taking,
    read_savepoint,
    read_taking,
)
from seamark.spark.hadoop_files import open_files

log = logging.getLogger(__name__)

CLAIMED = "claimed.json"
_KIND = "claimed"


@dataclass(frozen=True)
class Claim:
    """The job owning a savepoint; `job_directory` is a URI, `claimed_at` in seconds since 1970."""

    job_id: str
    job_name: str
    job_directory: str
    claimed_at: float


def read_claim(files: Directory) -> Claim | None:
    """Return the claim on the savepoint in `files`, or None; raises CorruptRecordError."""
    try:
        return load_record(files, _KIND, CLAIMED, Claim)
    except FileNotFoundError:
        return None


def claim(files: Directory, job_id: str, name: str, directory: str) -> None:
    """Give the savepoint to this job; repeated for the same job, it does nothing. Ends a claim of
    a job that is gone. Raises RestoreError if another job was first."""
    mine = Claim(job_id, name, directory, time.time())
    while not create_record(files, _KIND, CLAIMED, asdict(mine)):
        present = read_claim(files)
        if present is not None and present.job_id == job_id:
            return
        if present is None or is_owned(present, job_directory(directory)):
            raise RestoreError(claimed_by(files.uri, present))
        files.delete(CLAIMED)


def is_owned(claimed: Claim, asking: str = "") -> bool:
    """Return whether the claim's job is there, or its restore may still be ended; true if that
    cannot be read. Of the restores into the job's directory `asking` only one is ended, so those
    that were cut off there do not count."""
    job = job_directory(claimed.job_directory)
    lineage = claimed.job_directory.removeprefix(job).strip("/")
    try:
        if not exists(job):
            return False
        files = open_storage(job)
        begun = _body(files, "restoring", f"{lineage}/{RESTORING}")
        chain = [lineage_directory(number) for number in lineages_of(files)]
        if lineage in chain:
            own = _body(files, "job", f"{lineage}/job.json")
            return claimed.job_id in (own.get("job_id"), begun.get("job_id"))
        current = _body(files, "job", f"{chain[-1]}/job.json")
        can_end = begun.get("supersedes") == current.get("job_id") and not same_place(job, asking)
        return can_end and begun.get("job_id") == claimed.job_id
    except (SeamarkError, OSError) as error:
        log.warning("savepoint claimed by job %r: %s", claimed.job_name, error)
        return True


def claimed_by(uri: str, owner: Claim | None) -> str:
    """Name a savepoint's owner, in a sentence for the user."""
    whose = (
        f"job {owner.job_name!r} ({owner.job_directory})" if owner is not None else "another job"
    )
    return (
        f"savepoint {uri} was claimed by {whose}, which deletes it when its own first checkpoint "
        "is complete; restore a checkpoint or a savepoint of that job instead"
    )


class ClaimDisposal:
    """Deletes the savepoint claimed by a job, in a thread, once the job has a complete checkpoint
    of its own. Each run of the job has one `ClaimDisposal`. The next run tries again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._done = False

    def __call__(self, identity: JobIdentity, epoch: int) -> None:
        """Note that the job has committed `epoch`, and its checkpoint is complete."""
        origin = identity.restored_from or {}
        # The savepoint's own epoch is not enough: the job may have to commit its transactions.
        if self._done or origin.get("claim_mode") != "claim" or epoch <= origin["epoch"]:
            return
        self._done = True
        # Not a daemon: the interpreter waits for the thread at the job's end.
        threading.Thread(
            target=self._dispose,
            args=(str(origin["path"]).rstrip("/"), identity.job_id),
            name="seamark-claim",
        ).start()

    def _dispose(self, uri: str, job_id: str) -> None:
        try:
            files = open_files(self._spark, uri, make=False)
            present = read_claim(files)
            if present is None or present.job_id != job_id:
                return
            listed = read_savepoint(files).files if files.exists(SAVEPOINT) else ()
            remove_savepoint(files, listed)
            log.info(
                "savepoint %s, which this job has claimed, is deleted: the job has a complete "
                "checkpoint of its own", uri,
            )  # fmt: skip
        except Exception as error:
            log.warning(
                "savepoint %s, which this job has claimed, could not be deleted: %s; the job's "
                "next start tries again", uri, error,
            )  # fmt: skip


# --- deletion by a user


def open_savepoint(path: str) -> SavepointRecord:
    """Return the content of the ``savepoint.json`` at `path`; or raises SavepointError."""
    return _read(_open(path))


def _open(path: str) -> Directory:
    uri = storage_uri(path, "savepoint")
    if not exists(uri):
        raise SavepointError(f"{uri}: there is no savepoint here; check the path")
    return open_storage(uri)


def _read(files: Directory) -> SavepointRecord:
    try:
        return read_savepoint(files)
    except CorruptRecordError as error:
        raise SavepointError(str(error)) from None


def dispose(path: str, *, storage: str | None = None, incomplete: bool = False) -> list[str]:
    """Delete a savepoint: the files in its record, and every other file that matches a savepoint's
    layout. Return the remaining files of its directory; they stay, and the directory with them.
    `incomplete` allows the deletion of a savepoint cut off while it was written.

    Raises SavepointError, and deletes nothing, if `path` is no savepoint, or an incomplete one
    without `incomplete`, if a job has claimed it, if it is still being written, or if a job in
    `storage` (a URI) is being restored from it.
    """
    files = _open(path)
    uri = files.uri
    listed: Collection[str] = ()
    if not files.exists(SAVEPOINT) and (taking := read_taking(files)) is not None:
        _require_cut_off(uri, taking, incomplete)
    else:
        listed = _read(files).files
    claim = read_claim(files)
    if claim is not None and is_owned(claim):
        raise SavepointError(
            f"savepoint {uri} is not disposed of: job {claim.job_name!r} ({claim.job_directory}) "
            "has claimed it, and deletes it when its own first checkpoint is complete"
        )
    if storage is not None and (begun := _restores_from(storage, uri)) is not None:
        raise SavepointError(
            f"savepoint {uri} is not disposed of: job {job_directory(begun)!r} in {storage} is "
            "being restored from it. Let that restore end (run the job again), or delete what "
            f"there is of it: {storage}/{begun}"
        )
    return remove_savepoint(files, listed)


def _require_cut_off(uri: str, taking: Taking, allowed: bool) -> None:
    """Raise SavepointError if it may still be being written, or if `allowed` is false."""
    begun = f"the savepoint of job {taking.job_name!r}, epoch {taking.epoch}, is not whole"
    storage, _, name = taking.job_directory.rpartition("/")
    try:
        job = find_job(storage, name)
        lives = not job.state.is_terminal and (
            job.state not in OUTSIDE
            or (job.start.host == socket.gethostname() and is_alive(job.start.pid))
        )
        runs = lives and job.start.started_at < taking.begun_at
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
    """Return a directory in the storage where a restore from this savepoint has begun and not
    ended. One below a job that has gone on in another lineage since is never ended."""
    if not exists(storage):
        return None
    files = open_storage(storage)
    for name in files.list(""):
        begun = [f"{name}/{LINEAGES}/{each}" for each in files.list(f"{name}/{LINEAGES}")]
        for directory in (name, *begun):
            try:
                restoring = _body(files, "restoring", f"{directory}/{RESTORING}")
                if not same_place(restoring.get("path"), uri):
                    continue
                chain = known_lineages(storage, name)
                current = _body(files, "job", f"{chain[-1]}/job.json").get("job_id")
            except CorruptRecordError:
                continue
            ended = directory in chain and files.exists(f"{directory}/job.json")
            if not ended and restoring.get("supersedes") == current:
                return directory
    return None


def _body(files: Directory, kind: str, path: str) -> dict[str, Any]:
    """Return a record's body, {} if it is missing; raises CorruptRecordError."""
    try:
        return read_record(files, kind, path.lstrip("/"))
    except FileNotFoundError:
        return {}


# --- deletion of the files

_AT_ONCE = 8
_WRITTEN = re.compile(
    r"spark/(offsets|commits)/\d+"
    r"|spark/sources/\d+/[\w.-]+"
    r"|spark/state/\d+/(\d+/([\w-]+/)?)?(_metadata|_stateSchema)/[\w/.-]+"
    r"|state/\d+/[\w-]+/part-\d{5}-[0-9a-f-]{36}\.snappy\.parquet"
    r"|state/\d+/([\w-]+/)*\d+([_-][\w-]+)?\.(delta|snapshot|zip|changelog|sst|log)(\.crc)?"
)
"""The paths of a savepoint's files (docs/FORMAT.md), listed in its record or not."""
_BESIDE = re.compile(r"\.(?P<name>.+)\.(crc|[0-9a-f]{16}\.tmp)")
"""Hadoop's checksum of a file on a local disk, or an unfinished file of ours."""


def remove_savepoint(files: Directory, listed: Collection[str] = ()) -> list[str]:
    """Delete the savepoint in `files`; `listed` are the files in its record, if it has one. Return
    the other files of its directory; if there are any, the directory stays. After a kill -9 it can
    be called again: ``savepoint.json`` goes first, so that the rest is an incomplete savepoint, and
    ``taking.json``, which describes it, goes last. Raises OSError."""
    present = files.tree()
    own = [path for path in present if _is_own(path, listed)]
    first = [path for path in own if path == SAVEPOINT]
    last = [path for path in own if path in (TAKING, CLAIMED)]
    for path in first:
        files.remove(path)
    in_threads(files.remove, list(set(own).difference(first, last)), _AT_ONCE)
    for path in last:
        files.remove(path)
    files.remove_empty()
    left = sorted(set(present).difference(own))
    if left:
        log.warning("%s stays: %d files in it are not the savepoint's", files.uri, len(left))
    return left


def _is_own(path: str, listed: Collection[str]) -> bool:
    above, slash, name = path.rpartition("/")
    if beside := _BESIDE.fullmatch(name):
        path = above + slash + beside["name"]
    return (
        path in (SAVEPOINT, TAKING, CLAIMED)
        or path in listed
        or _WRITTEN.fullmatch(path) is not None
        or (path.startswith(f"{SPOOLS}/") and parse_path(path.split("/", 2)[-1]) is not None)
    )

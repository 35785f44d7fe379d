"""Tells a copied job's directory from one that was moved: a job in the copy reads the same rows as
that in the original, and writes each once more.

A lease holds the place where its driver had the directory. A copy takes the leases along, with the
original's place in them. There the same job still lies, and no file made in the copy.
"""

import logging
import uuid
from collections.abc import Callable

from seamark.checkpoint.store import CheckpointStore
from seamark.files import Directory
from seamark.files.deadline import CallHangsError, call_within
from seamark.files.location import same_place
from seamark.model.errors import SeamarkError, UserError

log = logging.getLogger(__name__)

LOOK_S = 20.0
"""How long the place in the lease may take to answer. One that does not is taken for given up."""


def require_no_copy(store: CheckpointStore, open_files: Callable[[str], Directory]) -> None:
    """Raise UserError if this directory is a copy of another that can be reached from here.

    Called before anything but the trial of the storage is written. A directory that was moved, or
    is reached by another path or URI, goes on.
    """
    try:
        lease = store.newest_lease()
        place = str((lease or {}).get("directory") or store.uri)
        if same_place(place, store.uri):
            return
        job_id = store.read_identity().job_id
        is_copy = call_within(LOOK_S, lambda: _lies_there(store, open_files(place), job_id))
    except (OSError, SeamarkError, CallHangsError) as error:
        log.info("whether %s is a copy is not known: %s", store.uri, error)
        return
    if is_copy:
        raise UserError(
            f"{store.uri} is a copy of {place}, which is still there: beside that job this one "
            "would write its rows once more. If it is to go on in its stead, delete or rename "
            f"{place}. If both are to run, begin a job of its own with the copy, under another "
            f"storage or name and with targets of its own: seamark run -s {store.uri} "
            "-D checkpoint.storage=... APP.PY"
        )


def _lies_there(store: CheckpointStore, other: Directory, job_id: str) -> bool:
    """Whether the same job has another directory there, and not this one by another path."""
    try:
        if CheckpointStore(other, store.spark_files).read_identity().job_id != job_id:
            return False
    except FileNotFoundError:
        return False
    directory = f"preflight-{uuid.uuid4().hex}"
    store.files.create(f"{directory}/copy", b"")
    try:
        return not other.exists(f"{directory}/copy")
    finally:
        store.files.delete(directory)

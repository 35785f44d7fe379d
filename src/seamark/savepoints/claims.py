"""A claimed savepoint belongs to the job that was restored from it, which deletes it when its own
first checkpoint is complete; nobody else may restore it then.

``claimed.json`` beside ``savepoint.json`` says whose it is (docs/FORMAT.md). A restore with
``claim`` writes it before anything else, `restore/savepoint_planning.py` and `disposal.py` refuse
what another job has claimed, and each run of the job has a `ClaimDisposal` (`claim_disposal.py`).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from seamark.checkpoint.envelope import open_envelope, seal_envelope
from seamark.contracts.checkpoint_files import CheckpointFiles
from seamark.model.errors import CorruptRecordError, RestoreError

CLAIMED = "claimed.json"
_KIND = "claimed"


@dataclass(frozen=True)
class Claim:
    """The job that a savepoint belongs to; `job_directory` is a URI, `claimed_at` in seconds since
    1970."""

    job_id: str
    job_name: str
    job_directory: str
    claimed_at: float


def read_claim(files: CheckpointFiles) -> Claim | None:
    """Return who has claimed the savepoint in `files`, None if nobody has; raises
    CorruptRecordError."""
    try:
        data = files.read(CLAIMED)
    except FileNotFoundError:
        return None
    at = f"{files.uri}/{CLAIMED}"
    try:
        return Claim(**open_envelope(_KIND, data, at))
    except TypeError as error:
        raise CorruptRecordError(f"{at}: {error}") from None


def claim(files: CheckpointFiles, job_id: str, name: str, directory: str) -> None:
    """Make the savepoint that job's; called again for the same job it does nothing. Raises
    RestoreError if another one was first."""
    mine = Claim(job_id, name, directory, time.time())
    try:
        files.create(CLAIMED, seal_envelope(_KIND, asdict(mine)))
    except FileExistsError:
        found = read_claim(files)
        if found is None or found.job_id != job_id:
            raise RestoreError(claimed_by(files.uri, found)) from None


def claimed_by(uri: str, found: Claim | None) -> str:
    """Say whose a savepoint is."""
    whose = (
        f"job {found.job_name!r} ({found.job_directory})" if found is not None else "another job"
    )
    return (
        f"savepoint {uri} was claimed by {whose}, which deletes it when its own first checkpoint "
        "is complete; restore a checkpoint or a savepoint of that job instead"
    )

"""A claimed savepoint belongs to the job that was restored from it, which deletes it when its own
first checkpoint is complete; nobody else may restore it then.

``claimed.json`` beside ``savepoint.json`` says whose it is (docs/FORMAT.md). A restore with
``claim`` writes it before anything else, `savepoint_planning.py` refuses what another job has
claimed, and each run of the job has a `ClaimDisposal`.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from tidemark.checkpoint.envelope import open_envelope, seal_envelope
from tidemark.checkpoint.store import JobIdentity
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.errors import CorruptRecordError, RestoreError
from tidemark.runtime.hadoop_files import open_files
from tidemark.savepoints.record import SAVEPOINT

log = logging.getLogger(__name__)

CLAIMED = "claimed.json"
_KIND = "claimed"


@dataclass(frozen=True)
class Claim:
    """The job that a savepoint belongs to; `directory` is the job's, as a URI, and `claimed_at` in
    seconds since 1970."""

    job_id: str
    job_name: str
    directory: str
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
    whose = f"job {found.job_name!r} ({found.directory})" if found is not None else "another job"
    return (
        f"savepoint {uri} was claimed by {whose}, which deletes it when its own first checkpoint "
        "is complete; restore a checkpoint or a savepoint of that job instead"
    )


class ClaimDisposal:
    """Deletes the savepoint that a job has claimed, in a thread, when the job has a complete
    checkpoint of its own; one of each run of the job. A failure is a warning, and the next run
    tries again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._done = False

    def __call__(self, identity: JobIdentity, epoch: int) -> None:
        """Note that the job has committed `epoch`, and its checkpoint is complete."""
        origin = identity.restored_from or {}
        if self._done or epoch < identity.first_epoch or origin.get("claim_mode") != "claim":
            return
        self._done = True
        # Not a daemon: the interpreter waits for it at the job's end.
        threading.Thread(
            target=self._dispose,
            args=(str(origin["path"]).rstrip("/"), identity.job_id),
            name="tidemark-claim",
        ).start()

    def _dispose(self, uri: str, job_id: str) -> None:
        try:
            files = open_files(self._spark, uri, make=False)
            found = read_claim(files)
            if found is None or found.job_id != job_id:
                return
            files.delete(SAVEPOINT)  # cut off here it is no savepoint
            above, _, name = uri.rpartition("/")
            open_files(self._spark, above, make=False).delete(name)
            log.info(
                "savepoint %s, which this job has claimed, is deleted: the job has a complete "
                "checkpoint of its own", uri,
            )  # fmt: skip
        except Exception as error:
            log.warning(
                "savepoint %s, which this job has claimed, could not be deleted: %s; the job's "
                "next start tries again", uri, error,
            )  # fmt: skip

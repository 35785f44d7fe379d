"""Deletes the savepoint that a job has claimed (`claims.py`), once the job does not need it."""

from __future__ import annotations

import logging
import threading

from pyspark.sql import SparkSession

from seamark.checkpoint.store import JobIdentity
from seamark.runtime.hadoop_files import open_files
from seamark.savepoints.claims import read_claim
from seamark.savepoints.record import SAVEPOINT, read_savepoint
from seamark.savepoints.removal import remove_savepoint

log = logging.getLogger(__name__)


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
        # The savepoint's own epoch, whose transactions the job may have to commit, is not enough.
        if self._done or origin.get("claim_mode") != "claim" or epoch <= origin["epoch"]:
            return
        self._done = True
        # Not a daemon: the interpreter waits for it at the job's end.
        threading.Thread(
            target=self._dispose,
            args=(str(origin["path"]).rstrip("/"), identity.job_id),
            name="seamark-claim",
        ).start()

    def _dispose(self, uri: str, job_id: str) -> None:
        try:
            files = open_files(self._spark, uri, make=False)
            found = read_claim(files)
            if found is None or found.job_id != job_id:
                return
            listed = read_savepoint(files).files if files.exists(SAVEPOINT) else ()
            left = remove_savepoint(files, listed)
            log.info(
                "savepoint %s, which this job has claimed, is deleted: the job has a complete "
                "checkpoint of its own", uri,
            )  # fmt: skip
            if left:
                log.warning("%s stays: %d files in it are not the savepoint's", uri, len(left))
        except Exception as error:
            log.warning(
                "savepoint %s, which this job has claimed, could not be deleted: %s; the job's "
                "next start tries again", uri, error,
            )  # fmt: skip

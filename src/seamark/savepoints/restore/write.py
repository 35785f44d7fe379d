"""Makes a new job of a savepoint or a retained checkpoint.

`Job.run` calls `restore_job` before it starts the query. `planner.py` finds every problem before
anything is written. Then come the marker ``restoring.json``, the copy, and ``job.json``. The marker
holds every decision of the restore, so an interrupted restore is repeated as it was.
"""

import logging
import time
import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.inspection import RESTORING
from seamark.checkpoint.manifest import ManifestWriter
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.file_systems.location import storage_uri
from seamark.model import failpoints
from seamark.model.errors import RestoreError
from seamark.savepoints.restore.options import NewJob
from seamark.savepoints.restore.origin import Origin, open_job
from seamark.savepoints.restore.plan import Action, ClaimMode
from seamark.savepoints.restore.planner import Prepared, prepare
from seamark.savepoints.restore.target import require_same, take_over, write_marker

log = logging.getLogger(__name__)


def restore_job(spark: SparkSession, path: str, job: NewJob) -> None:
    """Make the job in its directory; it goes on after the epoch of the savepoint or retained
    checkpoint at `path`. A checkpoint's `path` is ``<storage>/<job>``, for the newest complete one
    of that job, or ``<storage>/<job>/epochs/<n>``.

    Returns at once if the directory holds a job restored from this very path; the path may be gone
    by now. After a kill -9 it can be called again. Before anything is written it raises
    RestoreError if parts do not fit together, SavepointError or DamagedCheckpointError if the
    savepoint or checkpoint is not whole. Raises CheckpointError if it is deleted meanwhile.
    """
    path = storage_uri(path, "restore")
    target = open_job(spark, job.directory, job.spark_directory)
    if target.files.exists("job.json"):
        require_same(target, path, job.name)
        target.files.delete(RESTORING)  # of a restore that was cut off at its last step
        return
    with prepare(spark, path, job) as prepared:
        origin = prepared.require()
        for warning in prepared.plan.warnings:
            log.warning("restore: %s", warning)
        for operator in prepared.plan.operators:
            if operator.action is Action.NEW:
                log.warning(
                    "restore: operator %r (%s) begins without state", operator.uid, operator.type
                )
        write_job(target, job, prepared, origin)


def write_job(target: CheckpointStore, job: NewJob, prepared: Prepared, origin: Origin) -> None:
    """Make the job in `target`, a directory without a job, out of the origin. After a kill -9 it is
    called again, with the marker's content in `prepared.begun`."""
    decided = _decide(target, job, prepared, origin)
    failpoints.reached("restore-begun")
    log.info("restoring %s into %s", origin.name, target.uri)
    origin.copy(target, decided, prepared.parts)
    waiting = origin.waiting(decided)
    for epoch, read in waiting.items():
        take_over(target, epoch, read)
    if not waiting:
        by_directory = job.program.uids.by_directory
        ManifestWriter(target.files, target.spark_files, by_directory).write(origin.epoch)
    failpoints.reached("restore-copied")
    restored_from = {
        "path": prepared.plan.path,
        "job_id": decided["source_job_id"],
        "epoch": origin.epoch,
    }
    if origin.kind == "savepoint":
        restored_from["is_savepoint"] = True
    if job.claim_mode is ClaimMode.CLAIM:
        restored_from["claim_mode"] = job.claim_mode.value
    target.create_identity(
        JobIdentity(
            job_id=decided["job_id"],
            lineage_id=decided["lineage_id"],
            name=job.name,
            first_epoch=min(waiting, default=origin.epoch + 1),
            created_at=decided["created_at"],
            restored_from=restored_from,
            spark_directory=target.spark_directory,
        )
    )
    failpoints.reached("restored")
    target.files.delete(RESTORING)


def _decide(
    target: CheckpointStore, job: NewJob, prepared: Prepared, origin: Origin
) -> Mapping[str, Any]:
    """Write the decisions of the restore, or return those of an interrupted one; then claim the
    origin, if the job asks for it."""
    decided, fixed = prepared.begun, origin.fixed()
    if decided is None:
        decided = {
            "path": prepared.plan.path,
            "source_job_id": origin.job_id,
            "epoch": origin.epoch,
            "job_id": uuid.uuid4().hex,
            "lineage_id": uuid.uuid4().hex,
            "query_id": str(uuid.uuid4()),
            "created_at": time.time(),
            **origin.decisions(),
        }
        write_marker(target, decided)
    elif any(decided.get(key, value) != value for key, value in fixed.items()):
        raise RestoreError(
            f"restore: {target.uri} is a restore of {prepared.plan.path} that was begun with "
            + ", ".join(f"{key} {decided.get(key)!r}" for key in fixed)
            + "; end it with those, or delete the directory"
        )
    try:
        origin.claim(decided["job_id"], target.uri)
    except RestoreError:  # another job was first, at this moment
        if prepared.begun is None:
            target.files.delete(RESTORING)
        raise
    return decided

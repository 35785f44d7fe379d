"""A new job from a savepoint, by uid, onto any number of state partitions and backend; or from a
retained checkpoint, which `savepoints/restore/checkpoint.py` copies.

`Job.run` calls `restore_job` before it starts the query. What fits and what does not,
`restore/planner.py` says before anything is written. Of the savepoint nothing is changed, but for
the note that it is claimed; ``restoring.json`` holds all that the restore decides, so that a
restore that was cut off is done again to the very same end, and ``job.json`` is made last.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.config import storage_uri
from seamark.checkpoint.inspection import RESTORING
from seamark.checkpoint.manifest import ManifestWriter
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.model import failpoints
from seamark.model.errors import RestoreError
from seamark.runtime.hadoop_files import open_files
from seamark.savepoints.claims import claim
from seamark.savepoints.record import SavepointRecord
from seamark.savepoints.restore.checkpoint import open_job, require_same, take_over, write_plan
from seamark.savepoints.restore.checkpoint import restore as restore_checkpoint
from seamark.savepoints.restore.location import restore_canonical
from seamark.savepoints.restore.options import NewJob, Prepared
from seamark.savepoints.restore.plan import Action, ClaimMode
from seamark.savepoints.restore.planner import prepare
from seamark.savepoints.take import uncommitted as committables
from seamark.savepoints.take.kept_rows import put_back

log = logging.getLogger(__name__)


def restore_job(spark: SparkSession, path: str, job: NewJob) -> None:
    """Make the job's directory one that goes on after the epoch of the savepoint, or the retained
    checkpoint, at `path`.

    Returns at once if it holds a job that was restored from this very path, which may be gone by
    now. After a kill -9 it can be called again. Before anything is written it raises RestoreError
    for what does not fit together, SavepointError and DamagedCheckpointError for what is no whole
    savepoint.
    """
    path = storage_uri(path, "restore")
    target = open_job(spark, job.directory)
    if target.files.exists("job.json"):
        require_same(target, path, job.name)
        target.files.delete(RESTORING)
        return
    with prepare(spark, path, job) as prepared:
        prepared.require()
        for warning in prepared.plan.warnings:
            log.warning("restore: %s", warning)
        for operator in prepared.plan.operators:
            if operator.action is Action.NEW:
                log.warning(
                    "restore: operator %r (%s) begins without state", operator.uid, operator.type
                )
        if prepared.savepoint is None:
            restore_checkpoint(spark, path, job.directory, job.name)
        else:
            _restore(spark, target, job, prepared, prepared.savepoint)


def _restore(
    spark: SparkSession,
    target: CheckpointStore,
    job: NewJob,
    prepared: Prepared,
    savepoint: SavepointRecord,
) -> None:
    decided = _decide(spark, target, job, prepared, savepoint)
    failpoints.reached("restore-begun")
    log.info("restoring savepoint %s into %s", savepoint.uri, target.uri)
    restore_canonical(
        spark,
        savepoint,
        target.spark_files.uri,
        query_id=decided["query_id"],
        partitions=job.partitions,
        backend=job.backend,
        placement=prepared.placement,
        new_operators=prepared.new_operators,
    )
    commits = {int(epoch): uids for epoch, uids in decided["commits"].items()}
    if commits:
        put_back(spark, savepoint, target, {uid for uids in commits.values() for uid in uids})
        found = committables.by_epoch(savepoint)
        for epoch in range(min(commits), savepoint.epoch + 1):
            parts = {uid: found[epoch][uid] for uid in commits.get(epoch, ())}
            take_over(target, epoch, partial(dict, parts))
    else:
        ManifestWriter(target.files, target.spark_files).write(savepoint.epoch)
    failpoints.reached("restore-copied")
    origin = {
        "path": prepared.plan.path,
        "job_id": savepoint.job_id,
        "epoch": savepoint.epoch,
        "is_savepoint": True,
    }
    if job.claim_mode is ClaimMode.CLAIM:
        origin["claim_mode"] = job.claim_mode.value
    target.create_identity(
        JobIdentity(
            job_id=decided["job_id"],
            lineage_id=decided["lineage_id"],
            name=job.name,
            first_epoch=min(commits, default=savepoint.epoch + 1),
            created_at=decided["created_at"],
            restored_from=origin,
        )
    )
    failpoints.reached("restored")
    target.files.delete(RESTORING)


def _commits(spark: SparkSession, job: NewJob, savepoint: SavepointRecord) -> dict[str, list[str]]:
    """Return by epoch the sinks whose transactions in the savepoint this job commits."""
    dropped = committables.unfit(savepoint, job.sinks)
    kept = {
        str(epoch): [uid for uid in parts if uid not in dropped]
        for epoch, parts in committables.uncommitted(spark, savepoint).items()
    }
    return {epoch: uids for epoch, uids in kept.items() if uids}


def _decide(
    spark: SparkSession,
    target: CheckpointStore,
    job: NewJob,
    prepared: Prepared,
    savepoint: SavepointRecord,
) -> Mapping[str, Any]:
    """Write down what the restore decides, or return what one that was cut off had; then claim the
    savepoint, if that is wanted."""
    wanted = {
        "partitions": job.partitions,
        "state_backend": job.backend.value,
        "claim_mode": job.claim_mode.value,
    }
    decided = prepared.begun
    if decided is None:
        decided = {
            "path": prepared.plan.path,
            "source_job_id": savepoint.job_id,
            "epoch": savepoint.epoch,
            "job_id": uuid.uuid4().hex,
            "lineage_id": uuid.uuid4().hex,
            "query_id": str(uuid.uuid4()),
            "created_at": time.time(),
            "commits": _commits(spark, job, savepoint),
            **wanted,
        }
        write_plan(target, decided)
    elif any(decided.get(key, value) != value for key, value in wanted.items()):
        raise RestoreError(
            f"restore: {target.uri} is a restore of {prepared.plan.path} that was begun with "
            + ", ".join(f"{key} {decided.get(key)!r}" for key in wanted)
            + "; end it with those, or delete the directory"
        )
    if job.claim_mode is ClaimMode.CLAIM:
        try:
            files = open_files(spark, savepoint.uri, make=False)
            claim(files, decided["job_id"], job.name, target.uri)
        except RestoreError:  # another one was first, at this moment
            if prepared.begun is None:
                target.files.delete(RESTORING)
            raise
    return decided

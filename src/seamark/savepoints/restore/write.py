"""Makes a new job of a savepoint or a retained checkpoint.

`Job.run` calls `restore_job` before it starts the query. `planner.py` finds every problem before
anything is written. Then come the marker ``restoring.json``, the copy, and ``job.json``. The marker
holds every decision of the restore, so an interrupted restore is repeated as it was.
"""

import contextlib
import logging
import time
import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from seamark.checkpoint.inspection import RESTORING
from seamark.checkpoint.manifest import ManifestWriter
from seamark.checkpoint.store import JobIdentity
from seamark.files.location import storage_uri
from seamark.model import failpoints
from seamark.model.errors import RestoreError
from seamark.savepoints.restore.lineage import Place, end_lineage, find_place, settle
from seamark.savepoints.restore.options import NewJob
from seamark.savepoints.restore.origin import Origin
from seamark.savepoints.restore.plan import Action, ClaimMode
from seamark.savepoints.restore.planner import Prepared, prepare, storages_answer
from seamark.savepoints.restore.target import take_over, write_marker

log = logging.getLogger(__name__)


def restore_job(spark: SparkSession, path: str, job: NewJob) -> str:
    """Make the job in its directory, or its next lineage if there is a job; return the directory in
    which it goes on, after the epoch of the savepoint or retained checkpoint at `path`. A
    checkpoint's `path` is ``<storage>/<job>``, for the newest complete one of that job, or
    ``<storage>/<job>/epochs/<n>``.

    Returns at once if any lineage of the job was restored from this very path, as a supervisor's
    unchanged command needs it after a later restore by hand; the path may be gone by now. After
    a kill -9 it can be called again. Before anything is written it raises
    RestoreError if parts do not fit together, SavepointError or DamagedCheckpointError if the
    savepoint or checkpoint is not whole. Raises CheckpointError if it is deleted meanwhile, and
    RecordNotStoredError if a storage does not answer.
    """
    path = storage_uri(path, "restore")
    with storages_answer(path, job):
        return _restored(spark, path, job)


def _restored(spark: SparkSession, path: str, job: NewJob) -> str:
    place = find_place(spark, path, job)
    current = place.current
    if current is not None and (restored := place.restored_from(path)) is not None:
        log.warning(
            "%s goes on after its own epoch %d, for %s was restored from %s already. To go back to "
            "that, restore a copy of it (another path)", current.uri, current.latest_decision(),
            "it" if restored is current else f"the job's earlier lineage {restored.uri}", path,
        )  # fmt: skip
        current.files.delete(RESTORING)  # of a restore that was cut off at its last step
        return current.uri
    with contextlib.ExitStack() as planned:
        prepared = planned.enter_context(prepare(spark, path, job, place))
        origin = prepared.require()
        if current is not None and _changed(prepared, origin):
            log.warning("%s was begun by another program or with other options", place.target.uri)
            place = find_place(spark, path, job, anew=True)
            prepared = planned.enter_context(prepare(spark, path, job, place))
            origin = prepared.require()
        for warning in prepared.plan.warnings:
            log.warning("restore: %s", warning)
        for operator in prepared.plan.operators:
            if operator.action is Action.NEW:
                log.warning(
                    "restore: operator %r (%s) begins without state", operator.uid, operator.type
                )
        generation = 0
        if current is not None:
            generation = settle(spark, job, place)
            if any(sink.commit for sink in prepared.plan.sinks):  # they are committed by now
                prepared = planned.enter_context(prepare(spark, path, job, place))
                origin = prepared.require()
        write_job(place, job, prepared, origin, generation)
    return place.target.uri


def write_job(
    place: Place, job: NewJob, prepared: Prepared, origin: Origin, generation: int = 0
) -> None:
    """Make the job at its place out of the origin, and end the current lineage, settled by its
    driver `generation`. After a kill -9 it is called again, with the marker's content in
    `prepared.begun`."""
    target = place.target
    decided = _decide(place, job, prepared, origin)
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
    if place.current is not None:
        end_lineage(place, generation, restored_from)
    target.files.delete(RESTORING)


def _decide(place: Place, job: NewJob, prepared: Prepared, origin: Origin) -> Mapping[str, Any]:
    """Write the decisions of the restore, or return those of an interrupted one; then claim the
    origin, if the job asks for it."""
    target, decided = place.target, prepared.begun
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
            **origin.fixed(prepared.parts),
        }
        if place.current is not None:
            decided["supersedes"] = place.current.read_identity().job_id
            decided["supersedes_epoch"] = place.current.latest_decision()
        write_marker(target, decided)
    elif changed := _changed(prepared, origin):
        raise RestoreError(
            f"restore: {target.uri} is a restore of {prepared.plan.path} that was begun with "
            f"{', '.join(changed)}; end it with those, or delete the directory"
        )
    try:
        origin.claim(decided["job_id"], target.uri)
    except RestoreError:  # another job was first, at this moment
        if prepared.begun is None:
            target.files.delete(RESTORING)
        raise
    return decided


def _changed(prepared: Prepared, origin: Origin) -> list[str]:
    """Return what an interrupted restore was begun with, and this one was not."""
    begun = prepared.begun
    if begun is None:
        return []
    fixed = origin.fixed(prepared.parts)
    return [
        "other operators or sources" if key == "placement" else f"{key} {begun.get(key)!r}"
        for key, value in fixed.items()
        if begun.get(key) != value
    ]

"""A new job from a canonical savepoint: by uid, onto any number of state partitions and backend.

`Job.run` calls `restore_job` before it starts the query. As in `runtime/restore.py`, nothing of the
savepoint is written, ``restoring.json`` holds all that the restore decides, so that a restore that
was cut off is done again to the very same end, and ``job.json`` is made last.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from tidemark.api.config import StateBackend, storage_uri
from tidemark.checkpoint.inspection import RESTORING
from tidemark.checkpoint.manifest import ManifestWriter
from tidemark.checkpoint.store import JobIdentity
from tidemark.model import failpoints
from tidemark.model.errors import RestoreError
from tidemark.runtime.hadoop_files import open_files
from tidemark.runtime.operator_uids import OperatorUids
from tidemark.runtime.restore import open_job, read_plan, require_same, write_plan
from tidemark.savepoints.record import SAVEPOINT, Savepoint, read_savepoint
from tidemark.savepoints.restoring import (
    NewOperator,
    Placement,
    check_restore,
    restore_canonical,
)
from tidemark.savepoints.source_topics import Subscription, topic_changes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewJob:
    """The job that goes on from a savepoint: the uids of its program's plan, the backend it keeps
    its state in, and its number of state partitions (None: as many as the savepoint has)."""

    name: str
    directory: str
    uids: OperatorUids
    backend: StateBackend
    partitions: int | None = None
    allow_non_restored_state: bool = False
    reading: Mapping[str, Subscription] = field(default_factory=dict)
    """What its Kafka sources read, by uid."""


def is_savepoint(spark: SparkSession, path: str) -> bool:
    """Whether `path` is a savepoint, rather than a retained checkpoint; a directory of one that was
    cut off is neither."""
    return open_files(spark, storage_uri(path, "restore"), make=False).exists(SAVEPOINT)


def restore_job(spark: SparkSession, path: str, job: NewJob) -> None:
    """Make the job's directory one that goes on after the epoch of the savepoint at `path`.

    Returns at once if it holds a job that was restored from this very path. After a kill -9 it can
    be called again. Before anything is written it raises RestoreError for what does not fit
    together, SavepointError and DamagedCheckpointError for what is no whole savepoint.
    """
    path = storage_uri(path, "restore")
    target = open_job(spark, job.directory)
    if target.files.exists("job.json"):
        require_same(target, path, job.name)
        target.files.delete(RESTORING)
        return
    plan = read_plan(target, path)
    savepoint = read_savepoint(open_files(spark, path, make=False))
    placement = place(savepoint, job)
    new_operators = begin_empty(placement, job)
    check_restore(spark, path, placement, job.backend, new_operators, partitions=job.partitions)
    if plan is None:
        plan = {
            "path": path,
            "source_job_id": savepoint.job_id,
            "epoch": savepoint.epoch,
            "job_id": uuid.uuid4().hex,
            "lineage_id": uuid.uuid4().hex,
            "query_id": str(uuid.uuid4()),
            "created_at": time.time(),
            "partitions": job.partitions,
            "state_backend": job.backend.value,
        }
        write_plan(target, plan)
    elif (plan["partitions"], plan["state_backend"]) != (job.partitions, job.backend.value):
        raise RestoreError(
            f"restore: {target.uri} is a restore of {path} that was begun with "
            f"parallelism {plan['partitions']} and state_backend {plan['state_backend']!r}; end it "
            "with those, or delete the directory"
        )
    failpoints.reached("restore-begun")
    log.info("restoring savepoint %s into %s", path, target.uri)
    restore_canonical(
        spark,
        savepoint,
        target.spark_files.uri,
        query_id=plan["query_id"],
        partitions=job.partitions,
        backend=job.backend,
        placement=placement,
        new_operators=new_operators,
    )
    ManifestWriter(target.files, target.spark_files).write(savepoint.epoch)
    failpoints.reached("restore-copied")
    target.create_identity(
        JobIdentity(
            job_id=plan["job_id"],
            lineage_id=plan["lineage_id"],
            name=job.name,
            first_epoch=savepoint.epoch + 1,
            created_at=plan["created_at"],
            restored_from={
                "path": path,
                "job_id": savepoint.job_id,
                "epoch": savepoint.epoch,
                "is_savepoint": True,
            },
        )
    )
    failpoints.reached("restored")
    target.files.delete(RESTORING)


def place(savepoint: Savepoint, job: NewJob) -> Placement:
    """Return where each source and operator of the savepoint goes; raises RestoreError for what has
    no place, and for an operator whose uid has state of another type."""
    operators, sources = job.uids.operator_numbers(), job.uids.source_numbers()
    kept = {o.uid: operators[o.uid] for o in savepoint.operators if o.uid in operators}
    read = {s.uid: sources[s.uid] for s in savepoint.sources if s.uid in sources}
    left = [
        *(f"operator {o.uid!r} ({o.rows} rows of state)" for o in savepoint.operators
          if o.uid not in operators),
        *(f"source {s.uid!r}" for s in savepoint.sources if s.uid not in sources),
    ]  # fmt: skip
    if left and not job.allow_non_restored_state:
        raise RestoreError(
            f"restore: savepoint {savepoint.uri} has {', '.join(left)}, and job {job.name!r} has "
            "nothing of these uids; name them with uid= and job.uid(…), or drop what they have: "
            "-n, allow_non_restored_state=True"
        )
    types = job.uids.operator_types
    for operator in savepoint.operators:
        if operator.uid in kept and not types[kept[operator.uid]].is_named(operator.name):
            raise RestoreError(
                f"restore: savepoint {savepoint.uri} has state of {operator.name} for operator "
                f"{operator.uid!r}, which is {types[kept[operator.uid]].name} in job {job.name!r}; "
                "give one of another type a uid of its own"
            )
    topics = topic_changes(savepoint.uri, savepoint.sources, job.reading)
    if topics.problems and not job.allow_non_restored_state:
        raise RestoreError(f"restore: savepoint {savepoint.uri}: {'; '.join(topics.problems)}")
    for uid, added in topics.added.items():
        log.info("restore: source %r reads %s from the start", uid, ", ".join(added))
    # One of whose topics nothing is left begins as a new source, with its own starting offsets.
    read = {uid: number for uid, number in read.items() if uid not in topics.begun}
    return Placement(kept, read, job.uids.source_lines, topics.offsets)


def begin_empty(placement: Placement, job: NewJob) -> tuple[NewOperator, ...]:
    """Return the job's operators that nothing is placed at; `check_restore` says which cannot begin
    so."""
    placed = set(placement.operators.values())
    found = tuple(
        NewOperator(index, type_.name, type_.keyed, type_.prefix_columns)
        for index, type_ in enumerate(job.uids.operator_types)
        if index not in placed
    )
    for new in found:
        uid = job.uids.of_operator(new.index)
        log.warning("restore: operator %r (%s) begins without state", uid, new.name)
    return found

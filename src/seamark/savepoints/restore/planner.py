"""Makes the restore plan: what a savepoint or a retained checkpoint and a program's job have in
common, and what would stop the restore.

Nothing is written but a scratch directory on this machine. `prepare` is the one way in: what it
plans is what `restore/write.py` does, and `Job.restore_plan` shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from seamark.api.config import storage_uri
from seamark.checkpoint.store import CheckpointStore
from seamark.model.errors import ConfigurationError, RestoreError
from seamark.runtime.hadoop_files import open_files
from seamark.savepoints.record import SAVEPOINT, read_savepoint
from seamark.savepoints.restore.checkpoint import open_job, read_plan, require_same
from seamark.savepoints.restore.checkpoint_planning import of_checkpoint
from seamark.savepoints.restore.options import NewJob, Prepared, job_state
from seamark.savepoints.restore.plan import JobState, RestorePlan
from seamark.savepoints.restore.savepoint_planning import of_savepoint
from seamark.savepoints.state.planned import scratch


def plan_restore(
    spark: SparkSession, path: str, job: NewJob, *, into_directory: bool = True
) -> RestorePlan:
    """Return what restoring `path` into the job would do. Without `into_directory` the job's
    directory is not looked at: it may be the running job's own.

    Raises RestoreError, SavepointError or CorruptRecordError if nothing can be read at `path`.
    """
    if into_directory:
        target = open_job(spark, job.directory)
        if target.files.exists("job.json"):
            return _already_there(target, storage_uri(path, "restore"), job)
    with prepare(spark, path, job, into_directory=into_directory) as prepared:
        return prepared.plan


def write_plan(spark: SparkSession, path: str | None, job: NewJob, file: Path) -> None:
    """Write the plan as JSON into `file`, for ``seamark run --plan``. Raises ConfigurationError if
    there is no path, and as `plan_restore` does."""
    if not path:
        raise ConfigurationError(
            f"Job {job.name!r}: nothing says what the plan is to be of; give the path of a "
            "savepoint or a retained checkpoint: -s PATH"
        )
    file.write_text(json.dumps(plan_restore(spark, path, job).to_json()), encoding="utf-8")


@contextmanager
def prepare(
    spark: SparkSession, path: str, job: NewJob, *, into_directory: bool = True
) -> Iterator[Prepared]:
    """Yield what restoring `path` into the job takes, which lasts as long as the ``with``; the
    job's directory has no job yet. Raises as `plan_restore` does."""
    path = storage_uri(path, "restore")
    begun, problems = None, []
    if into_directory:
        try:
            begun = read_plan(open_job(spark, job.directory), path)
        except RestoreError as error:
            problems.append(str(error))
    with scratch() as directory:
        files = open_files(spark, path, make=False)
        if files.exists(SAVEPOINT):
            prepared = of_savepoint(spark, read_savepoint(files), job, begun, directory)
        else:
            prepared = of_checkpoint(spark, path, job, begun, directory)
        plan = prepared.plan
        yield replace(
            prepared,
            begun=begun,
            plan=replace(plan, path=path, problems=(*problems, *plan.problems)),
        )


def _already_there(target: CheckpointStore, path: str, job: NewJob) -> RestorePlan:
    identity = target.read_identity()
    plan = RestorePlan(
        path=path,
        kind="savepoint",
        format=None,
        source=JobState("", "", 0),
        target=job_state(job, job.partitions or 0),
        claim_mode=job.claim_mode,
    )
    try:
        require_same(target, path, job.name)
    except RestoreError as error:
        return replace(plan, problems=(str(error),))
    source = replace(plan.source, epoch=(identity.restored_from or {}).get("epoch"))
    warning = (
        f"{target.uri} was restored from this path already: the job goes on after its own epoch "
        f"{target.latest_decision()}, and {path} is not read"
    )
    return replace(plan, restored=True, source=source, warnings=(warning,))

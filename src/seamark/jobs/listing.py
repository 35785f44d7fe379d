"""The jobs of a storage by their directories: what lies there, and nothing asked of a driver."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from seamark.checkpoint.executions import Execution, ExecutionStart, ExecutionStore
from seamark.checkpoint.lineages import job_directory
from seamark.checkpoint.store import CheckpointStore
from seamark.files import in_threads
from seamark.jobs.checkpoint_history import (
    READ_AT_ONCE,
    current_directory,
    jobs_in,
    lineages_in,
    open_storage,
)
from seamark.model.errors import CheckpointError, CorruptRecordError, UserError

log = logging.getLogger(__name__)

_SOME_OF_AN_ID = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True)
class ListedJob:
    """One job of a storage, or a `superseded` lineage of it, with its last execution. `directory`
    is its directory there."""

    storage: str
    directory: str
    name: str
    execution: Execution = field(repr=False)
    superseded: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.start.job_id})"

    @property
    def start(self) -> ExecutionStart:
        """The start of its last execution: the job's id, and where its driver is."""
        return self.execution.start

    @property
    def uri(self) -> str:
        """The URI of its directory."""
        return f"{self.storage}/{self.directory}"


def listed(storage: str) -> Sequence[ListedJob]:
    """Return the jobs with checkpoints in `storage`, by directory, each with its superseded
    lineages before it. Leaves out a job never run by `Job.run`, or run by an older version only."""
    chains = in_threads(partial(known_lineages, storage), jobs_in(storage), READ_AT_ONCE)
    ends = {chain[-1] for chain in chains}
    every = [at for chain in chains for at in chain]
    opened = in_threads(lambda at: open_job(storage, at, at not in ends), every, READ_AT_ONCE)
    return [job for job in opened if job is not None]


def find_listed(storage: str, job: str) -> ListedJob:
    """Return one job of a storage by its directory's name, its own name, its id, or the first
    digits of its id. Four digits or more are needed, and no other job's id may begin with them. A
    superseded lineage has an id and a directory of its own, and its name is its successor's. Raises
    UserError, with the names of the existing jobs, if no job or more than one matches."""
    names = jobs_in(storage)
    if (own := job_directory(job)) in names:
        lineages = lineages_in(storage, own)
        at = lineages[-1] if job == own else job
        if (one := open_job(storage, at, at in lineages[:-1])) is not None:
            return one
        raise UserError(
            f"job {job!r} in {storage} was never run by Job.run, or by an older version only: "
            f"nothing but its checkpoints is known; see seamark checkpoints {job}"
        )
    jobs = listed(storage)
    matching = [one for one in jobs if one.name == job and not one.superseded]
    if len(matching) > 1:
        raise UserError(
            f"{len(matching)} jobs in {storage} have the name {job!r}; give the directory's name: "
            + ", ".join(one.directory for one in matching)
        )
    if not matching and _SOME_OF_AN_ID.fullmatch(job):
        matching = [one for one in jobs if one.start.job_id.startswith(job)]
        if len(matching) > 1:
            ids = ", ".join(f"{one.start.job_id} ({one.directory})" for one in matching)
            raise UserError(
                f"{job} begins the ids of {len(matching)} jobs: {ids}; give more digits"
            )
    if matching:
        return matching[0]
    raise UserError(
        f"{storage} holds no job {job!r} (a name, an id, or its first digits); "
        + (f"there are {', '.join(names)}" if names else "there is none at all")
        + ". Another storage is given with --storage"
    )


def directory_of(storage: str, job: str) -> str:
    """Return a job's directory in the storage, as `find_listed` finds it. A job never run needs no
    more than its directory."""
    if job in jobs_in(storage):
        return current_directory(storage, job)
    return find_listed(storage, job).directory


def known_lineages(storage: str, name: str) -> list[str]:
    """Do as `lineages_in`, for people: of a damaged chain return the first lineage alone."""
    try:
        return lineages_in(storage, name)
    except CheckpointError as error:
        log.warning("%s", error)
        return [name]


def newest_execution(storage: str, directory: str) -> Execution | None:
    """Return the last run of the job in this directory of `storage`; None if there was none."""
    return ExecutionStore(open_storage(f"{storage}/{directory}")).newest()


def open_job(storage: str, directory: str, superseded: bool = False) -> ListedJob | None:
    """Return the job in this directory; None if it was never run. Its name is the directory's own,
    or the name in its job.json: its last run may be another job's that was copied there."""
    execution = newest_execution(storage, directory)
    if execution is None:
        return None
    name = job_directory(directory)
    if execution.start.name != name:
        files = open_storage(f"{storage}/{directory}")
        try:
            name = CheckpointStore(files, files).read_identity().name
        except (CorruptRecordError, OSError) as error:
            log.info("%s", error)
    return ListedJob(storage, directory, name, execution, superseded=superseded)

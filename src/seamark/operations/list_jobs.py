"""`seamark list`: the jobs of a storage, running or ended."""

from __future__ import annotations

from collections.abc import Sequence

from seamark.model.errors import UserError
from seamark.model.job_state import JobState
from seamark.operations.storage import readable
from seamark.runtime.checkpoint_history import exists, open_storage
from seamark.runtime.registry import RegisteredJob, list_jobs


def jobs(storage: str, *, running: bool, ended: bool) -> Sequence[RegisteredJob]:
    """Return jobs, the last started first. Those that run are always among them; those whose driver
    does not answer are, unless only those that are `running` are wanted; with `ended` all are.

    `storage` is a URI. Raises UserError if there is nothing at it.
    """
    with readable(storage):
        found = sorted(list_jobs(storage), key=lambda job: -job.started_at)
        if not found and not (exists(storage) and open_storage(storage).exists("")):
            raise UserError(
                f"the storage {storage} is not there, so no job has run with it; check --storage, "
                "or checkpoint.storage in seamark.toml"
            )
    return [
        job
        for job in found
        if ended
        or (not job.state.is_terminal and not (running and job.state is JobState.UNREACHABLE))
    ]

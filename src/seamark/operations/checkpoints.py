"""`seamark checkpoints JOB`: the history of a job's checkpoints, whether it runs or not."""

from __future__ import annotations

from seamark.model.checkpoint_statistics import CheckpointStatistics
from seamark.model.checkpointing_statistics import CheckpointingStatistics
from seamark.model.errors import UserError
from seamark.operations.storage import readable, storage_of
from seamark.runtime.checkpoint_history import jobs_in, read_history
from seamark.runtime.registry import find_job


def checkpoints(job: str, storage: str | None) -> CheckpointingStatistics:
    """Return what the storage has of the job's checkpoints, up to the last one that has ended.

    `job` is its name, its id or the first digits of that; `storage` is that of the job's
    CheckpointConfig, None takes it from seamark.toml. Raises UserError if there is no such job.
    """
    uri = storage_of("checkpoints", storage)
    # By its name first: jobs that Job.run has never run have no more than that.
    with readable(uri):
        return read_history(uri, job if job in jobs_in(uri) else find_job(uri, job).name)


def one_checkpoint(
    found: CheckpointingStatistics, job: str, checkpoint_id: int
) -> CheckpointStatistics:
    """Return the newest attempt at one checkpoint; raises UserError if none is kept."""
    if (checkpoint := found.find(checkpoint_id)) is not None:
        return checkpoint
    kept = [c.id for c in found.history]
    raise UserError(
        f"job {job!r} has no statistics of checkpoint {checkpoint_id}; "
        + (f"kept are those from {min(kept)} to {max(kept)}" if kept else "none are kept")
    )

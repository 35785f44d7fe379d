"""`EphemeralStorage`: checkpoints for one program only, for tests and trials."""

from dataclasses import dataclass
from pathlib import Path

from seamark.files.location import Location
from seamark.model.home import temporary_directory
from seamark.model.once import made_once


@dataclass(frozen=True)
class EphemeralStorage:
    """Checkpoints in a local temporary directory, deleted at the end of the program. The value of
    `CheckpointConfig.storage` for tests and trials (Flink: JobManager checkpoint storage). A
    program leaves nothing to go on from when it ends or dies, so no guarantee holds across
    programs; `explain` says so. A job restarted within the program does go on."""


def storage_directory(storage: str | EphemeralStorage) -> str:
    """Return the URI above all jobs' directories; `Job.run` asks once a run. One directory holds
    all ephemeral jobs of this program, so a job run again in it goes on. It is made at the first
    call and deleted at the end of the program, unless the program is killed."""
    if isinstance(storage, EphemeralStorage):
        return Location.parse(_temporary_directory(), "the temporary directory").uri
    return storage


@made_once
def _temporary_directory() -> Path:
    return temporary_directory("seamark-ephemeral-")

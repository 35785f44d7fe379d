"""`EphemeralStorage`: checkpoints that do not outlive the program, for tests and trials."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from seamark.file_systems.location import Location


@dataclass(frozen=True)
class EphemeralStorage:
    """Checkpoints in a local temporary directory that is deleted at the end of the program.

    The value of `CheckpointConfig.storage` for tests and trials (Flink: JobManager checkpoint
    storage). A program that ends or dies leaves nothing to go on from, so no guarantee holds across
    programs; `explain` says so. A job that is restarted within the program does go on.
    """


def storage_directory(storage: str | EphemeralStorage) -> str:
    """Return the URI below which each job has its directory; `Job.run` asks once a run.

    One directory holds all ephemeral jobs of this program, so a job that runs again in it goes on.
    It is made at the first call and deleted at the end of the program, unless that is killed.
    """
    if isinstance(storage, EphemeralStorage):
        return Location.parse(_temporary_directory(), "the temporary directory").uri
    return storage


@functools.cache
def _temporary_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="seamark-ephemeral-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory

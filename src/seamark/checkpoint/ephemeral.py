"""Where the checkpoints of `EphemeralStorage` lie: a directory that ends with the program."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from seamark.api.ephemeral_storage import EphemeralStorage
from seamark.file_systems.location import Location


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

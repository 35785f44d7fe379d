"""A storage's job names for shell completion: quick, silent, and only where that is easy."""

from __future__ import annotations

from pathlib import Path

from seamark.file_systems.location import local_of
from seamark.operations.storage import storage_of


def job_names(storage: str | None) -> list[str]:
    """Return the names of the jobs in a local storage; [] of any other, or if anything is wrong.

    Imports neither Spark nor anything that asks a driver: a shell waits for the answer.
    """
    try:
        local = local_of(storage_of("completion", storage))
        if local is None:
            return []
        return sorted(path.parent.name for path in Path(local).glob("*/job.json"))
    except Exception:  # whatever it is, a Tab must not print it
        return []

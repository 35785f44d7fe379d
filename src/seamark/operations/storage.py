"""Which storage a command looks at: its --storage, or that of seamark.toml.

Imports neither Spark nor anything that asks a driver: a shell waits for `job_names`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from seamark.api.config import CheckpointConfig, storage_uri
from seamark.api.settings import resolve
from seamark.file_systems.location import local_of
from seamark.model.errors import OperationFailedError, UserError


def storage_of(command: str, storage: str | None) -> str:
    """Return the storage as a URI; `storage` is what --storage gave. Raises ConfigurationError if
    neither it nor seamark.toml gives one; `command` is what the error names."""
    if storage is not None:
        return storage_uri(storage, "--storage")
    return str(resolve(command, CheckpointConfig())[0].storage)


@contextmanager
def readable(uri: str) -> Iterator[None]:
    """Raise OperationFailedError if the storage cannot be read in here: it is away, or refuses."""
    try:
        yield
    except OSError as error:
        raise OperationFailedError(f"the storage {uri} cannot be read: {error}") from error


def storage_option(uri: str) -> str:
    """Return what a command on jobs of that storage needs: `` --storage <uri>``, or "" if
    seamark.toml names it already."""
    try:
        return "" if storage_of("", None) == uri else f" --storage {quote(uri)}"
    except UserError:
        return f" --storage {quote(uri)}"


def job_names(storage: str | None) -> list[str]:
    """Return the names of the jobs in a local storage, for shell completion: quick and silent;
    [] of any other storage, or if anything is wrong."""
    try:
        local = local_of(storage_of("completion", storage))
        if local is None:
            return []
        return sorted(path.parent.name for path in Path(local).glob("*/job.json"))
    except Exception:  # whatever it is, a Tab must not print it
        return []

"""The storage of a command: its --storage, or that of a job that names none (`api/settings.py`).

Imports neither Spark nor a driver's client: a shell waits for `job_names`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from seamark.api.config import CheckpointConfig
from seamark.api.settings import resolve
from seamark.checkpoint.batch_log import BELOW_CHECKPOINT
from seamark.files.location import local_of, storage_uri
from seamark.model.errors import OperationFailedError, UserError


def storage_of(storage: str | None) -> str:
    """Return the storage as a URI. `storage` is the value of --storage. Raises ConfigurationError
    for one that can hold no checkpoints."""
    if storage is not None:
        return storage_uri(storage, "--storage")
    return str(resolve("", CheckpointConfig())[0].storage)


@contextmanager
def readable(uri: str) -> Iterator[None]:
    """Raise OperationFailedError if the storage cannot be read in this context."""
    try:
        yield
    except OSError as error:
        raise OperationFailedError(f"the storage {uri} cannot be read: {error}") from error


def storage_option(uri: str) -> str:
    """Return the option by which a command finds jobs of this storage: `` --storage <uri>``, or ""
    if it is the usual one here."""
    with suppress(UserError):  # a seamark.toml that cannot be read names none
        if storage_of(None) == uri:
            return ""
    return f" --storage {quote(uri)}"


def job_names(storage: str | None) -> list[str]:
    """Return the names of the jobs in a local storage, for shell completion: quick and silent.
    Returns [] for any other storage, and after any error."""
    try:
        local = local_of(storage_of(storage))
        if local is None:
            return []
        jobs = (path.parent for path in Path(local).glob("*/job.json"))
        queries = (path.parents[1] for path in Path(local).glob(f"*/{BELOW_CHECKPOINT}/job.json"))
        return sorted({path.name for path in (*jobs, *queries)})
    except Exception:  # a Tab must print no error
        return []

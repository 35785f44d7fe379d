"""`tidemark savepoint inspect` and `-d`: a savepoint's directory, without its job."""

from __future__ import annotations

from tidemark.api.config import storage_uri
from tidemark.model.errors import CorruptRecordError, SavepointError
from tidemark.runtime.checkpoint_history import exists, open_storage
from tidemark.savepoints.record import Savepoint, read_savepoint


def open_savepoint(path: str) -> Savepoint:
    """Return what the ``savepoint.json`` at `path` says; raises SavepointError if there is none, or
    it is damaged."""
    uri = storage_uri(path, "savepoint")
    if not exists(uri):
        raise SavepointError(f"{uri}: there is no savepoint here")
    try:
        return read_savepoint(open_storage(uri))
    except CorruptRecordError as error:
        raise SavepointError(str(error)) from None


def dispose(path: str) -> None:
    """Delete a whole savepoint. Raises SavepointError for what is none, which is left alone."""
    uri = storage_uri(path, "savepoint").rstrip("/")
    open_savepoint(uri)
    above, _, name = uri.rpartition("/")
    open_storage(above).delete(name)

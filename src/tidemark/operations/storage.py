"""Which storage a command looks at: its --storage, or that of tidemark.toml."""

from __future__ import annotations

from tidemark.api.config import CheckpointConfig, storage_uri
from tidemark.api.settings import resolve
from tidemark.model.errors import UserError


def storage_of(command: str, storage: str | None) -> str:
    """Return the storage as a URI; `storage` is what --storage gave. Raises ConfigurationError if
    neither it nor tidemark.toml gives one; `command` is what the error names."""
    if storage is not None:
        return storage_uri(storage, "--storage")
    return str(resolve(command, CheckpointConfig())[0].storage)


def storage_option(uri: str) -> str:
    """Return what a command on jobs of that storage needs: `` --storage <uri>``, or "" if
    tidemark.toml names it already."""
    try:
        return "" if storage_of("", None) == uri else f" --storage {uri}"
    except UserError:
        return f" --storage {uri}"

"""Local paths as users write them, and directories whose entries survive a power failure."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidemark.model.errors import ConfigurationError


def local_path(value: object, setting: str) -> str:
    """Return `value`, a path or a ``file:`` URI, as an absolute path.

    `setting` is what an error shows, e.g. ``FileSink: path``. Raises ConfigurationError for other
    schemes: several tasks and the driver must see one local directory.
    """
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise ConfigurationError(
            f"{setting} is {value!r}; give a local path or a URI such as 'file:///data/clicks'"
        )
    text = str(value)
    if "\0" in text:
        raise ConfigurationError(f"{setting} is {text!r}: a path cannot hold a NUL character")
    parts = urlsplit(text)
    if len(parts.scheme) > 1 and text.startswith(f"{parts.scheme}:"):
        if parts.scheme != "file":
            raise ConfigurationError(
                f"{setting} is {text!r}: only local paths in this version; "
                f"give a path or a 'file:' URI instead of '{parts.scheme}:'"
            )
        if parts.netloc not in ("", "localhost"):
            raise ConfigurationError(
                f"{setting} is {text!r}: {parts.netloc!r} stands where a file URI has its host; "
                f"write 'file:///{parts.netloc}{parts.path}' for an absolute path"
            )
        text = unquote(parts.path)
    return str(Path(text).expanduser().absolute())


def make_directory(path: Path) -> None:
    """Make `path` and its parents; each new entry is durable on return."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable: files that were created, renamed or removed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

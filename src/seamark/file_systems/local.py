"""Local disks, and file systems mounted like local disks: durable by fsync."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from seamark.file_systems.directory import NewFile
from seamark.file_systems.location import Location, require_unescaped
from seamark.model.errors import ConfigurationError


def local_path(value: object, setting: str) -> str:
    """Return `value`, a path or a ``file:`` URI, as an absolute path.

    `setting` is the name for the error, e.g. ``SQLiteSink: database``. Raises ConfigurationError
    for other schemes: several tasks and the driver must see one local directory.
    """
    wanted = "a local path or a URI such as 'file:///data/clicks'"
    location = Location.given(value, setting, wanted)
    if not location.is_local:
        raise ConfigurationError(
            f"{setting} is a {location.scheme!r} URI: only local paths in this version; "
            f"give a path or a 'file:' URI instead of '{location.scheme}:'"
        )
    require_unescaped(value, location, setting)
    return location.path


def make_directory(path: Path) -> None:
    """Make `path` and its parents; each new entry is durable on return."""
    if path.is_dir():
        return
    make_directory(path.parent)
    try:
        path.mkdir(exist_ok=True)
    except FileExistsError as error:  # a file: not one that the caller may find under its own name
        raise NotADirectoryError(error.errno, "is a file", str(path)) from None
    synced(path.parent)


def obstacle(path: Path) -> OSError | None:
    """Return why this user cannot write files into `path`, made if it is missing; None if nothing
    is known against it. Touches nothing."""
    while not path.exists() and path != path.parent:
        path = path.parent
    if not path.is_dir():
        return NotADirectoryError(f"{path} is no directory")
    if not os.access(path, os.W_OK | os.X_OK):
        return PermissionError(f"this user may not write into {path}")
    return None


def synced(path: Path) -> None:
    """Make a file's bytes durable, or a directory's entries: created, renamed and removed files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LocalDirectory:
    """See `Directory` and `RenamingDirectory`."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        self.uri = str(self._root)

    def create(self, path: str) -> "_LocalFile":
        """Begin a new file."""
        target = self._root / path
        while True:
            make_directory(target.parent)
            # Another process's `prune` may remove the directory before the file is in it.
            with contextlib.suppress(FileNotFoundError):
                return _LocalFile(target)

    def open(self, path: str) -> BinaryIO:
        """Return a file for reading."""
        return (self._root / path).open("rb")

    def size(self, path: str) -> int | None:
        """Return a file's bytes."""
        try:
            return (self._root / path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def modified(self, path: str) -> float | None:
        """Return when a file was last written."""
        try:
            return (self._root / path).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def list(self, path: str = "") -> dict[str, int]:
        """Return all files below `path`."""
        found = {}
        for directory, _, names in os.walk(self._root / path):
            for name in names:
                file = Path(directory) / name
                with contextlib.suppress(FileNotFoundError):  # gone since the listing
                    found[file.relative_to(self._root).as_posix()] = file.stat().st_size
        return found

    def delete(self, path: str) -> None:
        """Delete a file."""
        (self._root / path).unlink(missing_ok=True)

    def rename(self, path: str, to: str) -> None:
        """Move a file."""
        source, target = self._root / path, self._root / to
        if source.exists():  # else an unmounted root would be made anew
            make_directory(target.parent)
        source.rename(target)

    def sync(self, paths: Iterable[str]) -> None:
        """Make the entries of the directories of `paths` durable."""
        synced(self._root)  # raises if it is no longer mounted
        for directory in {(self._root / path).parent for path in paths} - {self._root}:
            with contextlib.suppress(FileNotFoundError):  # pruned
                synced(directory)

    def prune(self, path: str, below: str) -> None:
        """Remove empty directories."""
        top, directory = self._root / below, (self._root / path).parent
        with contextlib.suppress(OSError):  # not empty, or another process was faster
            while top in directory.parents:
                directory.rmdir()
                directory = directory.parent


class _LocalFile(NewFile):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, data: Any, /) -> int:
        return self._file.write(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            synced(self._path.parent)

    def discard(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink()

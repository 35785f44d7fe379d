"""Local disks, and file systems mounted like local disks: durable by fsync."""

import contextlib
import errno
import os
import secrets
import shutil
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from seamark.files.directory import NewFile, RenamingDirectory, visible
from seamark.files.location import Location, require_unescaped
from seamark.model.errors import ConfigurationError, CorruptRecordError

_DELETIONS = 1000
"""Tries of a deletion: each file that the other one deletes first takes one."""
_MAGIC = b"crc\0"
_CHUNKS_AT_ONCE = 2048


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


class LocalDirectory(RenamingDirectory):
    """See `Directory` and `RenamingDirectory`. Exclusive create is a hard link.

    Hadoop's local file system checks for an existing file, then renames over it, so two drivers
    could both believe they made a record; a hard link fails for the second
    (docs/adr/0004-exclusive-create.md).
    """

    def __init__(self, directory: str | Path) -> None:
        self.path = Path(directory)
        self.uri = f"file://{self.path}"

    def __str__(self) -> str:
        return str(self.path)

    def create(self, path: str, data: bytes) -> None:
        """Write a temporary file, sync it and link it to its name. Raises FileExistsError if the
        name is taken by another file: over NFS a link made is refused when its answer was lost."""
        target = self.path / path
        make_directory(target.parent)
        temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, target)
            except FileExistsError:
                if temporary.stat().st_nlink < 2:
                    raise
        finally:
            temporary.unlink(missing_ok=True)
        synced(target.parent)

    def begin(self, path: str) -> "_LocalFile":
        """Begin a new file."""
        target = self.path / path
        while True:
            make_directory(target.parent)
            # Another process's `prune` may remove the directory before the file is in it.
            with contextlib.suppress(FileNotFoundError):
                return _LocalFile(target)

    def open(self, path: str) -> BinaryIO:
        """Return a file for reading."""
        return (self.path / path).open("rb")

    def exists(self, path: str) -> bool:
        """Whether it exists now."""
        return self.stat(path) is not None

    def stat(self, path: str) -> tuple[int, float] | None:
        """Return bytes and time."""
        try:
            status = (self.path / path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return status.st_size, status.st_mtime

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, without unfinished temporary files."""
        try:
            return visible([entry.name for entry in (self.path / path).iterdir()])
        except (FileNotFoundError, NotADirectoryError):
            return []

    def tree(self, path: str = "") -> dict[str, int]:
        """Return all files below `path`; a link is not followed."""
        sizes = {}
        for at, directories, names in os.walk(self.path / path, onerror=_raise_unless_missing):
            links = [name for name in directories if Path(at, name).is_symlink()]
            for file in (Path(at, name) for name in names + links):
                with contextlib.suppress(FileNotFoundError):  # gone since the listing
                    sizes[file.relative_to(self.path).as_posix()] = file.lstat().st_size
        return sizes

    def delete(self, path: str) -> None:
        """Delete a file or a whole directory. Another process may delete the same, or write into
        it, meanwhile."""
        target = self.path / path
        for left in reversed(range(_DELETIONS)):
            try:
                if target.is_dir():
                    shutil.rmtree(target)
                else:
                    target.unlink(missing_ok=True)
                break
            except OSError as error:
                if not left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                    raise
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            synced(target.parent)

    def remove(self, path: str) -> None:
        """Delete one file."""
        (self.path / path).unlink(missing_ok=True)

    def remove_empty(self) -> None:
        """Delete every directory without a file in it."""
        for at, _, _ in os.walk(self.path, topdown=False):
            try:
                Path(at).rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                synced(Path(at))
        if not self.path.exists():
            synced(self.path.parent)

    def check(self, path: str) -> int:
        """Compare the file with Hadoop's checksum file, if there is one; return its size."""
        return verify(self.path / path)

    def rename(self, path: str, to: str) -> None:
        """Move a file."""
        source, target = self.path / path, self.path / to
        if source.exists():  # else an unmounted root would be made anew
            make_directory(target.parent)
        source.rename(target)

    def sync(self, paths: Iterable[str]) -> None:
        """Make the entries of the directories of `paths` durable."""
        synced(self.path)  # raises if it is no longer mounted
        for directory in {(self.path / path).parent for path in paths} - {self.path}:
            with contextlib.suppress(FileNotFoundError):  # pruned
                synced(directory)

    def prune(self, path: str, below: str) -> None:
        """Remove empty directories."""
        top, directory = self.path / below, (self.path / path).parent
        with contextlib.suppress(OSError):  # not empty, or another process was faster
            while top in directory.parents:
                directory.rmdir()
                directory = directory.parent


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


class _LocalFile(NewFile):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, data: Any, /) -> int:
        return self._file.write(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with self._file:  # on a full disk too: else Python writes its rest again at some time
                self._file.flush()
                os.fsync(self._file.fileno())
            synced(self._path.parent)

    def discard(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._path.unlink()


def verify(path: Path) -> int:
    """Compare a file with Hadoop's checksum file beside it, ``.<name>.crc``, if it has one; return
    the file's size in bytes. Raises CorruptRecordError naming the file, and FileNotFoundError.

    Hadoop's local file system writes one with every file Spark stores: ``crc`` and a zero byte, the
    chunk length as four bytes, then the CRC-32 of each chunk, all big-endian. Hadoop itself checks
    chunk by chunk while it reads, and so accepts a file cut at a chunk's end, or emptied; here the
    number of chunks counts too.
    """
    size = path.stat().st_size
    sidecar = path.parent / f".{path.name}.crc"
    try:
        stored = sidecar.read_bytes()
    except FileNotFoundError:
        return size
    chunk = struct.unpack(">i", stored[4:8])[0] if len(stored) >= 8 else 0
    if stored[:4] != _MAGIC or chunk <= 0 or len(stored) % 4:
        raise CorruptRecordError(
            f"{sidecar}: this checksum file is damaged ({len(stored)} bytes); if {path.name} is "
            "good, delete the checksum file"
        )
    chunks = -(-size // chunk)
    if chunks != (len(stored) - 8) // 4:
        raise CorruptRecordError(
            f"{path}: it has {size} bytes, which does not fit its checksum file {sidecar.name}: "
            "one of the two was truncated or replaced"
        )
    with path.open("rb") as file:
        at = 8
        while block := file.read(chunk * _CHUNKS_AT_ONCE):
            for start in range(0, len(block), chunk):
                crc = zlib.crc32(block[start : start + chunk])
                if crc != int.from_bytes(stored[at : at + 4], "big"):
                    where = (at - 8) // 4 * chunk
                    raise CorruptRecordError(
                        f"{path}: bytes {where} to {min(where + chunk, size)} do not match its "
                        f"checksum file {sidecar.name}: the file was altered"
                    )
                at += 4
    return size

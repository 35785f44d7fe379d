"""`CheckpointFiles` on a local directory: exclusive create by hard link, durable by fsync.

Hadoop's local file system checks for an existing file, then renames over it, so two drivers could
both believe they made a record; a hard link fails for the second
(docs/adr/0004-exclusive-create.md).
"""

import builtins
import contextlib
import errno
import itertools
import os
import secrets
import shutil
import stat
import struct
import zlib
from pathlib import Path

from seamark.file_systems.local import make_directory, synced
from seamark.model.errors import CorruptRecordError, PreflightError

_DELETIONS = 1000
"""Tries of a deletion: each file that the other one deletes first takes one."""


class LocalFiles:
    """Records below one local directory. It is made if it is missing, unless `make` is False."""

    def __init__(self, directory: str | Path, *, make: bool = True) -> None:
        self._root = Path(directory)
        self.uri = f"file://{self._root}"
        if not make:
            return
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PreflightError(
                f"checkpoint directory {self._root}: cannot be made ({error.strerror}); "
                "make it writable for this user or choose another storage"
            ) from error

    def create(self, path: str, data: bytes) -> None:
        """Write a temporary file, sync it and link it to its name. Raises FileExistsError if the
        name is taken by another file: over NFS a link made is refused when its answer was lost."""
        target = self._root / path
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

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        return (self._root / path).read_bytes()

    def exists(self, path: str) -> bool:
        """Return whether the file exists now."""
        return (self._root / path).exists()

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, without unfinished temporary files."""
        try:
            names = [entry.name for entry in (self._root / path).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in names if not name.startswith(".")]

    def sizes(self, *patterns: str) -> dict[str, int]:
        """Return the files matching one of the patterns, with their sizes in bytes."""
        found = {}
        for path in itertools.chain.from_iterable(self._root.glob(p) for p in patterns):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                status = path.stat()
                if stat.S_ISREG(status.st_mode) and not path.name.startswith("."):
                    found[path.relative_to(self._root).as_posix()] = status.st_size
        return found

    def delete(self, path: str) -> None:
        """Delete a file or a whole directory, if it exists. Another process may delete the same, or
        write into it, meanwhile."""
        target = self._root / path
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

    def tree(self) -> builtins.list[str]:
        """Return every file below the directory, hidden ones and links too."""
        found = []
        for at, directories, names in os.walk(self._root):
            links = [name for name in directories if Path(at, name).is_symlink()]
            found += [Path(at, name).relative_to(self._root).as_posix() for name in names + links]
        return found

    def remove(self, path: str) -> None:
        """Delete one file, if it exists."""
        (self._root / path).unlink(missing_ok=True)

    def remove_empty(self) -> None:
        """Delete every directory without a file in it."""
        for at, _, _ in os.walk(self._root, topdown=False):
            try:
                Path(at).rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                synced(Path(at))
        if not self._root.exists():
            synced(self._root.parent)

    def check(self, path: str) -> int:
        """Compare the file with Hadoop's checksum file, if there is one; return its size."""
        return verify(self._root / path)


_MAGIC = b"crc\0"
_CHUNKS_AT_ONCE = 2048


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

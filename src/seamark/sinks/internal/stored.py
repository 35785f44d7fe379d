"""Small calls on a table's directory, many at once where the store is far away."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from seamark.files import RowDirectory, in_threads
from seamark.files.local import synced
from seamark.model.findings import Finding, FindingCode
from seamark.model.ignored import ignored

_AT_ONCE = 16
T = TypeVar("T")


def is_local(uri: str) -> bool:
    """Whether the table is on a local disk; otherwise it is on HDFS or in an object store."""
    return "://" not in uri


def table_around(
    path: str, opened: Callable[[str], RowDirectory], name: str, remedy: str
) -> Finding | None:
    """Return what is wrong with a directory that, or one above it, is a table; None if none is.
    `opened` opens a directory."""
    top = "/".join(path.split("/")[:3]) if "://" in path else ""
    while path != top:
        with ignored("a look for a table above a directory"):  # one may not be listed
            directory, table = opened(path), ""
            if directory.exists("_delta_log"):
                table = f"Delta table {path}"
            elif any(file.endswith(".metadata.json") for file in directory.list("metadata")):
                table = f"Iceberg table {path}"
            if table:
                found = f"it lies in the {table}, whose readers do not see other files, and whose "
                found += "maintenance deletes them"
                return Finding(FindingCode.SV005, name, found, remedy)
        path = path.rpartition("/")[0]
    return None


def is_mounted(files: RowDirectory, below: str) -> bool:
    """Whether a table's directory is there, by the directory `below` that every such table has. On
    a local disk that is not mounted, or not shared, it is missing."""
    return not is_local(str(files)) or Path(str(files), below).is_dir()


def require_mounted(files: RowDirectory, below: str) -> None:
    """Raise OSError unless `is_mounted`: else a missing file would prove nothing."""
    if not is_mounted(files, below):
        raise FileNotFoundError(f"{Path(str(files), below)} is gone: not mounted?")


def read(files: RowDirectory, path: str) -> bytes | None:
    """Return a small file's content, None if there is no such file."""
    try:
        return files.read(path)
    except FileNotFoundError:
        return None


def reads(files: RowDirectory, paths: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the content of each small file, as `read` returns it."""
    for start in range(0, len(paths), _AT_ONCE):
        yield from _each(files, partial(read, files), paths[start : start + _AT_ONCE])


def write(files: RowDirectory, path: str, data: bytes) -> None:
    """Write a small file; durable on return."""
    with files.begin(path) as file:
        file.write(data)


def sizes(files: RowDirectory, paths: Sequence[str]) -> list[int | None]:
    """Return each file's size in bytes, None for a missing file."""
    return _each(files, files.size, paths)


def delete(files: RowDirectory, paths: Sequence[str]) -> None:
    """Delete files; missing ones are fine."""
    _each(files, files.remove, paths)


def _each(files: RowDirectory, ask: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    return in_threads(ask, paths, 1 if is_local(str(files)) else _AT_ONCE)


def sync(files: RowDirectory, paths: Sequence[str]) -> None:
    """Make another program's files, and their names, durable. Other stores do so by themselves."""
    if not is_local(str(files)):
        return
    there = [Path(str(files), path) for path in paths]
    for path in (*there, *{path.parent for path in there}):
        synced(path)

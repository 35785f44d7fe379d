"""A table's directory on local disks, HDFS or S3: delta-rs's options, and the calls it lacks.

delta-rs reads and commits the table itself. Growing data files, the ledger's log entries and the
attempts' records go through `seamark.file_systems`. Both reach HDFS and S3 as Spark does, by its
Hadoop settings.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from seamark.file_systems import Directory, HadoopSettings, in_threads
from seamark.file_systems.hdfs import client_settings
from seamark.file_systems.local import synced
from seamark.file_systems.s3_options import S3Options

_DEADLINES = {
    "connect_timeout": "5s",
    "max_retries": "3",
}
"""A call to an unreachable store must return within seconds."""
_AT_ONCE = 16
T = TypeVar("T")


def is_local(uri: str) -> bool:
    """Whether the table is on a local disk; otherwise it is on HDFS or S3."""
    return "://" not in uri


def delta_options(uri: str, hadoop: HadoopSettings) -> dict[str, str] | None:
    """Return delta-rs's options for a table: Spark's settings under delta-rs's names.

    AWS's own places fill in the rest: environment, profile, the machine's role. Requests are
    path-style, delta-rs's default, so no bucket needs a host name of its own. None for a local
    table.
    """
    if is_local(uri):
        return None
    if uri.startswith("hdfs://"):
        return dict(client_settings(hadoop))
    found = S3Options.of(uri.partition("://")[2].partition("/")[0], hadoop)
    options = {
        "aws_endpoint_url": found.endpoint,
        "aws_region": found.region,
        "aws_access_key_id": found.access_key,
        "aws_secret_access_key": found.secret_key,
        "aws_session_token": found.session_token,
        "aws_skip_signature": "true" if found.anonymous else "",
        "aws_server_side_encryption": found.encryption,
        "aws_sse_kms_key_id": found.encryption_key,
        "aws_allow_http": "true" if found.endpoint.startswith("http:") else "",
        "timeout": f"{found.timeout_s:g}s",
        "retry_timeout": f"{found.timeout_s:g}s",
    }
    return {**_DEADLINES, **{name: value for name, value in options.items() if value}}


def require_mounted(files: Directory) -> None:
    """Raise OSError for a local table without its log: where the disk is not mounted now, a missing
    file proves nothing, and delta-rs finds no new version without an error."""
    if is_local(files.uri) and not (log := Path(files.uri, "_delta_log")).is_dir():
        raise FileNotFoundError(f"{log} is gone: not mounted?")


def read(files: Directory, path: str) -> bytes | None:
    """Return a small file's content, None if there is no such file."""
    try:
        with files.open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def reads(files: Directory, paths: Sequence[str]) -> Iterator[bytes | None]:
    """Yield the content of each small file, as `read` returns it."""
    for start in range(0, len(paths), _AT_ONCE):
        yield from _each(files, partial(read, files), paths[start : start + _AT_ONCE])


def write(files: Directory, path: str, data: bytes) -> None:
    """Write a small file; durable on return."""
    with files.create(path) as file:
        file.write(data)


def sizes(files: Directory, paths: Sequence[str]) -> list[int | None]:
    """Return each file's size in bytes, None for a missing file."""
    return _each(files, files.size, paths)


def delete(files: Directory, paths: Sequence[str]) -> None:
    """Delete files; missing ones are fine."""
    _each(files, files.delete, paths)


def _each(files: Directory, ask: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    return in_threads(ask, paths, 1 if is_local(files.uri) else _AT_ONCE)


def sync(files: Directory, paths: Sequence[str]) -> None:
    """Make another program's files, and their names, durable. HDFS and S3 do so by themselves."""
    if not is_local(files.uri):
        return
    there = [Path(files.uri, path) for path in paths]
    for path in (*there, *{path.parent for path in there}):
        synced(path)

"""HDFS through hdfs-native, a client in Rust that needs no JVM.

The client reads ``HADOOP_CONF_DIR`` by itself; the settings given here override it. The user is the
process's, or ``HADOOP_USER_NAME``; with Kerberos, the process's ticket or delegation token. The
client waits for ever on a silent NameNode, so each call to it here has a deadline of our own.
"""

import builtins
import contextlib
import functools
import io
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO

from seamark.files.deadline import CallHangsError, call_within
from seamark.files.directory import NewFile, RenamingDirectory, visible
from seamark.files.settings import HadoopSettings
from seamark.model.errors import CorruptRecordError
from seamark.model.ignored import clean
from seamark.model.packages import load_driver

BUFFER_BYTES = 1 << 20
CALL_DEADLINE_S = 50.0
"""A committer, which gives up at the first such call, has a minute."""
_DEADLINES = {
    # With the client's own values a call to an absent NameNode lasts three minutes.
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
    "dfs.client.socket-timeout": "20000",
}
"""Defaults; the user's own values win."""
_PREFIXES = ("dfs.", "fs.defaultFS", "fs.viewfs.", "hadoop.security.")


def client_settings(settings: HadoopSettings) -> HadoopSettings:
    """Return the settings for hdfs-native: its part of Hadoop's, over deadlines of our own."""
    given = {name: value for name, value in settings.items() if name.startswith(_PREFIXES)}
    return HadoopSettings({**_DEADLINES, **given})


class HdfsDirectory(RenamingDirectory):
    """See `Directory` and `RenamingDirectory`. Exclusive create is a rename in the NameNode."""

    def __init__(self, uri: str, settings: HadoopSettings) -> None:
        self.uri = uri.rstrip("/")
        host, _, path = self.uri.removeprefix("hdfs://").partition("/")
        self._root = f"/{path}"
        self._config = client_settings(settings)
        self._url = f"hdfs://{host}" if host else self._config.get("fs.defaultFS")
        _library()

    @property
    def _client(self) -> Any:
        return _client(self._url, self._config)

    def create(self, path: str, data: bytes) -> None:
        """Write a temporary file, and rename it, which the NameNode refuses over another file."""
        directory, slash, name = path.rpartition("/")
        temporary = f"{directory}{slash}.{name}.{secrets.token_hex(8)}.tmp"
        try:
            with self.begin(temporary) as file:
                file.write(data)
            self.rename(temporary, path)
        except BaseException as error:
            clean([partial(self.remove, temporary)], f"the end of {self.uri}/{temporary}")
            if isinstance(error, OSError) and self.exists(path):
                raise FileExistsError(f"{self.uri}/{path}") from None
            raise

    def begin(self, path: str) -> "_HdfsFile":
        """Begin a new file."""
        with _os_errors(f"{self.uri}/{path}"):
            raw = _call(
                self._client.create, self._at(path), _library().WriteOptions(overwrite=False)
            )
        return _HdfsFile(self, path, raw)

    def open(self, path: str) -> BinaryIO:
        """Return a file for reading."""
        with _os_errors(f"{self.uri}/{path}"):
            raw = _call(self._client.read, self._at(path))
        return io.BufferedReader(_Reading(raw, path), BUFFER_BYTES)

    def exists(self, path: str) -> bool:
        """Whether it exists now."""
        return self.stat(path) is not None

    def stat(self, path: str) -> tuple[int, float] | None:
        """Return bytes and time."""
        try:
            with _os_errors(f"{self.uri}/{path}"):
                status = _call(self._client.get_file_info, self._at(path))
        except FileNotFoundError:
            return None
        return int(status.length), float(status.modification_time) / 1e3

    def list(self, path: str) -> list[str]:
        """Return the names in a directory."""
        return visible(f.path.rpartition("/")[2] for f in self._statuses(path, recursive=False))

    def tree(self, path: str = "") -> dict[str, int]:
        """Return all files below `path`."""
        top = len(self._root.rstrip("/")) + 1
        statuses = self._statuses(path, recursive=True)
        return {f.path[top:]: int(f.length) for f in statuses if not f.isdir}

    def _statuses(self, path: str, *, recursive: bool) -> builtins.list[Any]:
        def ask() -> builtins.list[Any]:
            return [*self._client.list_status(self._at(path), recursive=recursive)]

        try:
            with _os_errors(f"{self.uri}/{path}"):
                return _call(ask)  # type: ignore[no-any-return]
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        """Delete a file or a whole directory."""
        self._delete(path, recursive=True)

    def remove(self, path: str) -> None:
        """Delete a file."""
        self._delete(path, recursive=False)

    def remove_empty(self) -> None:
        """Delete every directory without files."""
        statuses = self._statuses("", recursive=True)
        for directory in sorted((f.path for f in statuses if f.isdir), reverse=True):
            self._delete_empty(directory[len(self._root.rstrip("/")) + 1 :])
        self._delete_empty("")

    def _delete_empty(self, path: str) -> None:
        try:
            self._delete(path, recursive=False)
        except OSError as error:
            if "NotEmpty" not in str(error):
                raise

    def _delete(self, path: str, *, recursive: bool) -> None:
        with contextlib.suppress(FileNotFoundError), _os_errors(f"{self.uri}/{path}"):
            _call(self._client.delete, self._at(path), recursive)

    def check(self, path: str) -> int:
        """Read the file through; the client compares the blocks' checksums."""
        try:
            return super().check(path)
        except OSError as error:
            if "hecksum" in str(error):
                raise CorruptRecordError(f"it cannot be read: {error}") from error
            raise

    def rename(self, path: str, to: str) -> None:
        """Move a file."""
        with _os_errors(f"{self.uri}/{path}"):
            target = self._at(to)
            _call(self._client.mkdirs, target.rpartition("/")[0], 0o755, True)
            _call(self._client.rename, self._at(path), target, False)

    def sync(self, paths: Iterable[str]) -> None:
        """Do nothing: the NameNode has logged every change before it answers."""

    def prune(self, path: str, below: str) -> None:
        """Remove empty directories: the NameNode refuses the others."""
        directory = path.rpartition("/")[0]
        with contextlib.suppress(OSError), _os_errors(f"{self.uri}/{path}"):
            while directory.startswith(f"{below}/"):
                _call(self._client.delete, self._at(directory), False)
                directory = directory.rpartition("/")[0]

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root


class _HdfsFile(NewFile):
    """A `NewFile`, gathered into large writes."""

    def __init__(self, directory: HdfsDirectory, path: str, raw: Any) -> None:
        self._directory, self._path, self._raw = directory, path, raw
        self._buffer = bytearray()
        self._bytes = 0
        self._name = f"{directory.uri}/{path}"

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._buffer += view
        self._bytes += view.nbytes
        if len(self._buffer) >= BUFFER_BYTES:
            self._send()
        return view.nbytes

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._send()
        with _os_errors(self._name):
            if self._bytes:
                # To the DataNodes' disks, not only their memory. Erasure-coded files lack the call.
                with contextlib.suppress(NotImplementedError):
                    _call(self._raw.hsync)
            _call(self._raw.close)

    def discard(self) -> None:
        self.closed = True
        with contextlib.suppress(OSError):
            self._directory.remove(self._path)

    def _send(self) -> None:
        if self._buffer:
            with _os_errors(self._name):
                _call(self._raw.write, bytes(self._buffer))
            self._buffer.clear()


class _Reading(io.RawIOBase):
    """hdfs-native's reader with `readinto`, needed for buffering."""

    def __init__(self, raw: Any, name: str) -> None:
        self._raw, self._name = raw, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _os_errors(self._name):
            data = _call(self._raw.read, len(buffer))
        buffer[: len(data)] = data
        return len(data)


@functools.cache
def _library() -> Any:
    return load_driver("hdfs_native", "the HDFS client is not installed", "hdfs")


@functools.lru_cache(maxsize=8)
def _client(url: str | None, config: HadoopSettings) -> Any:
    return _library().Client(url, dict(config))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call the client in a thread; leave the thread behind at the deadline."""
    try:
        return call_within(CALL_DEADLINE_S, partial(function, *arguments))
    except CallHangsError:
        _client.cache_clear()  # the next call makes a connection of its own
        raise TimeoutError(f"HDFS has not answered within {CALL_DEADLINE_S:g} s") from None


@contextlib.contextmanager
def _os_errors(name: str) -> Iterator[None]:
    """Raise OSErrors for the client's RuntimeErrors, which hold Java's exception in their text."""
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        raise type(error)(f"{name}: {_first_line(error)}") from error
    except NotImplementedError:
        raise
    except (OSError, RuntimeError) as error:
        kind = TimeoutError if isinstance(error, TimeoutError) else OSError
        kind = PermissionError if "AccessControlException" in str(error) else kind
        raise kind(f"{name}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].split("\\n")[0]

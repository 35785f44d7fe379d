"""Google's and Azure's stores, through obstore: the library that delta-rs stands on too.

An object exists whole or not at all; it appears with one answer of the store. The parts of a large
one that is given up are in no listing: Azure forgets them after a week, Google by a rule of the
bucket.
"""

import contextlib
import functools
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, BinaryIO

from seamark.files.cloud_options import TIMEOUT_S, CloudOptions
from seamark.files.directory import NewFile, RowDirectory, visible
from seamark.files.settings import HadoopSettings
from seamark.model.ignored import clean
from seamark.model.packages import load_driver
from seamark.model.redaction import redact

PART_BYTES = 8 << 20
"""A file's bytes in memory while it is written; a smaller file is one request."""


class ObjectDirectory(RowDirectory):
    """See `RowDirectory`. Exclusive create is a write on condition; a newer file replaces an older
    one of its name."""

    def __init__(self, uri: str, settings: HadoopSettings) -> None:
        self.uri = uri.rstrip("/")
        self._prefix = self.uri.partition("://")[2].partition("/")[2]
        self._options = CloudOptions.of(self.uri, settings)
        extra = "gcs" if self._options.scheme == "gs" else "azure"
        load_driver("obstore", f"the client for {self._options.scheme}: is not installed", extra)

    def create(self, path: str, data: bytes) -> None:
        """Write an object on condition that its name is free."""
        with self._errors(path):
            self._store.put(self._key(path), data, mode="create", use_multipart=False)

    def begin(self, path: str) -> "_ObjectFile":
        """Begin a new object."""
        with self._errors(path):
            return _ObjectFile(self, path)

    def open(self, path: str) -> BinaryIO:
        """Return an object for reading; its bytes are fetched from the store on demand."""
        import obstore

        with self._errors(path):
            reader = obstore.open_reader(self._store, self._key(path))
        return io.BufferedReader(_Reader(self, path, reader), PART_BYTES)

    def exists(self, path: str) -> bool:
        """Whether there is such an object, or one below."""
        if path and self.stat(path):
            return True
        with self._errors(path):
            return any(self._store.list(self._key(path) or None, chunk_size=1))

    def stat(self, path: str) -> tuple[int, float] | None:
        """Return bytes and time."""
        with contextlib.suppress(FileNotFoundError), self._errors(path):
            head = self._store.head(self._key(path))
            return int(head["size"]), float(head["last_modified"].timestamp())
        return None

    def list(self, path: str) -> list[str]:
        """Return the names one level below `path`."""
        with self._errors(path):
            listing = self._store.list_with_delimiter(self._key(path) or None)
        keys = [*listing["common_prefixes"], *(one["path"] for one in listing["objects"])]
        return visible(key.rpartition("/")[2] for key in keys)

    def tree(self, path: str = "") -> dict[str, int]:
        """Return all objects below `path`."""
        with self._errors(path):
            pages = self._store.list(self._key(path) or None)
            return {self._path(one["path"]): int(one["size"]) for page in pages for one in page}

    def delete(self, path: str) -> None:
        """Delete an object, and all below it."""
        for one in [path, *self.tree(path)]:
            if one:
                self.remove(one)

    def remove(self, path: str) -> None:
        """Delete an object."""
        with contextlib.suppress(FileNotFoundError), self._errors(path):
            self._store.delete(self._key(path))

    def remove_empty(self) -> None:
        """Do nothing: these stores have no directories."""

    @property
    def _store(self) -> Any:
        return _client(self._options)

    def _errors(self, path: str) -> contextlib.AbstractContextManager[None]:
        return _os_errors(f"{self.uri}/{path}")

    def _key(self, path: str) -> str:
        return "/".join(part for part in (self._prefix, path) if part)

    def _path(self, key: str) -> str:
        return key[len(self._prefix) + 1 :] if self._prefix else key


class _ObjectFile(NewFile):
    def __init__(self, directory: ObjectDirectory, path: str) -> None:
        import obstore

        self._directory, self._path = directory, path
        self._writer = obstore.open_writer(
            directory._store, directory._key(path), buffer_size=PART_BYTES, max_concurrency=1
        )

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        with self._directory._errors(self._path):
            self._writer.write(bytes(view))
        return view.nbytes

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        with self._directory._errors(self._path):
            self._writer.close()

    def discard(self) -> None:
        if self.closed:
            what = f"the end of {self._directory.uri}/{self._path}"
            clean([functools.partial(self._directory.remove, self._path)], what)
        self.closed = True


class _Reader(io.RawIOBase):
    def __init__(self, directory: ObjectDirectory, path: str, reader: Any) -> None:
        self._directory, self._path, self._reader = directory, path, reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with self._directory._errors(self._path):
            data = memoryview(self._reader.read(len(buffer)))
        buffer[: len(data)] = data
        return len(data)


@functools.lru_cache(maxsize=16)
def _client(options: CloudOptions) -> Any:
    from obstore import store

    kind = store.GCSStore if options.scheme == "gs" else store.AzureStore
    return kind(
        options.bucket,
        config=dict(options.options),
        client_options={
            "allow_http": options.is_plain,
            "connect_timeout": timedelta(seconds=TIMEOUT_S / 4),
            "timeout": timedelta(seconds=TIMEOUT_S),
        },
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=TIMEOUT_S)},
    )


@contextlib.contextmanager
def _os_errors(name: str) -> Iterator[None]:
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{name}: {_said(error)}") from None
    except exceptions.AlreadyExistsError as error:
        raise FileExistsError(f"{name}: {_said(error)}") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(f"{name}: {_said(error)}") from None
    except exceptions.BaseError as error:
        raise ConnectionError(f"{name}: {_said(error)}") from None


def _said(error: Exception) -> str:
    """Return what the store said, without the client's state behind it: a SAS is in the URL."""
    return redact(str(error).partition("\n\nDebug source")[0].strip())

"""The files in a table's directory, on a local disk or on S3, for tasks and the driver alike.

delta-rs reads and commits the table itself; this is for what it has no call for: data files as
they grow, the ledger's log entries, the records of pending files. Paths are relative to the table.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemark.file_systems.local import make_directory, sync_directory

S3_SCHEMES = ("s3://", "s3a://")
CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 20
_ATTEMPTS = 3


class TableFiles:
    """One table's directory. Made where it is used: it holds connections."""

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        from pyarrow import fs

        self.uri = uri
        self.is_local = not uri.startswith(S3_SCHEMES)
        if self.is_local:
            self._root, self._fs = uri, fs.LocalFileSystem()
        else:
            self._root = uri.partition("://")[2].rstrip("/")
            self._fs = _s3(storage_options)

    def is_there(self) -> bool:
        """Whether this machine sees the table; an object store is the same from everywhere."""
        return not self.is_local or self._local("_delta_log").is_dir()

    def create(self, path: str) -> Any:
        """Return a new file, open for writing; it is durable after `close` and `sync`."""
        if self.is_local:
            make_directory(self._local(path).parent)
        return self._fs.open_output_stream(self._at(path))

    def sync(self, paths: Sequence[str]) -> None:
        """Make closed files and their directory entries durable; on S3 they are."""
        if not self.is_local:
            return
        for path in paths:
            descriptor = os.open(self._local(path), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        for directory in {self._local(path).parent for path in paths}:
            sync_directory(directory)

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a small file in one step."""
        if self.is_local:
            target = self._local(path)
            make_directory(target.parent)
            hidden = target.with_name(f".{uuid.uuid4().hex}.tmp")
            hidden.write_bytes(data)
            hidden.rename(target)
        else:
            with self._fs.open_output_stream(self._at(path)) as file:
                file.write(data)

    def read(self, path: str) -> bytes | None:
        """Return a small file, None if there is none."""
        try:
            with self._fs.open_input_stream(self._at(path)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        """Return each file's size in bytes, None for one that is not there."""
        infos = self._fs.get_file_info([self._at(path) for path in paths])
        return [info.size if info.is_file else None for info in infos]

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is fine."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(self._at(path))

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's files; [] if there is none."""
        from pyarrow import fs

        found = self._fs.get_file_info(fs.FileSelector(self._at(directory), allow_not_found=True))
        return [info.base_name for info in found if info.is_file]

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _local(self, path: str) -> Path:
        return Path(self._root, path)


def delta_options(uri: str, storage_options: Mapping[str, str]) -> dict[str, str] | None:
    """Return what delta-rs is given: the user's options, over deadlines that let a call to a store
    that is away come back within seconds."""
    if not uri.startswith(S3_SCHEMES):
        return None
    deadlines = {
        "timeout": f"{REQUEST_TIMEOUT_S}s",
        "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
        "max_retries": str(_ATTEMPTS),
        "retry_timeout": f"{REQUEST_TIMEOUT_S}s",
    }
    plain = {"aws_allow_http": "true"} if _endpoint(storage_options).startswith("http:") else {}
    return {**deadlines, **plain, **storage_options}


def _s3(storage_options: Mapping[str, str]) -> Any:
    """Return pyarrow's S3 client, by the options that delta-rs takes; what they do not say, AWS's
    own places do: environment, profile, the machine's role."""
    from pyarrow import fs

    given = _plain_names(storage_options)
    settings: dict[str, Any] = {
        "access_key": given.get("access_key_id"),
        "secret_key": given.get("secret_access_key"),
        "session_token": given.get("session_token") or given.get("token"),
        "region": given.get("region") or given.get("default_region"),
        "force_virtual_addressing": given.get("virtual_hosted_style_request", "").lower() == "true",
    }
    if endpoint := _endpoint(storage_options):
        scheme, _, host = endpoint.partition("://")
        settings["scheme"], settings["endpoint_override"] = scheme, host.rstrip("/")
    return fs.S3FileSystem(
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **{name: value for name, value in settings.items() if value},
    )


def _endpoint(storage_options: Mapping[str, str]) -> str:
    given = _plain_names(storage_options)
    return given.get("endpoint_url") or given.get("endpoint") or ""


def _plain_names(storage_options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower().removeprefix("aws_"): value for name, value in storage_options.items()}

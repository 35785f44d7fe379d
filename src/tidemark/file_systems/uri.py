"""From a URI to a directory: which file systems there are, and what a user may write."""

from __future__ import annotations

import os
import re

from tidemark.file_systems.directory import Directory
from tidemark.file_systems.local import LocalDirectory, local_path
from tidemark.file_systems.settings import HadoopSettings
from tidemark.model.errors import ConfigurationError

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(.*)", re.DOTALL)
S3_SCHEMES = ("s3a", "s3")


def shared_uri(value: object, setting: str) -> str:
    """Return `value` as `open_directory` takes it: an absolute local path, or a ``hdfs:``, ``s3a:``
    or ``s3:`` URI without a slash at its end. `setting` is what an error shows, e.g. ``FileSink:
    path``. Raises ConfigurationError; touches nothing."""
    parts = _URI.fullmatch(value) if isinstance(value, str) else None
    if parts is None or parts[1].lower() == "file" or isinstance(value, os.PathLike):
        return local_path(value, setting)
    scheme, authority, path = parts[1].lower(), parts[2] or "", parts[3].strip("/")
    if scheme not in ("hdfs", *S3_SCHEMES):
        raise ConfigurationError(
            f"{setting} has the scheme {scheme!r}, and Tidemark has no client for it; give a local "
            "path, or a URI with 'file:', 'hdfs:', 's3a:' or 's3:'"
        )
    if "@" in authority:  # not shown: it holds a secret
        raise ConfigurationError(
            f"{setting} is a {scheme}: URI with a user or a key in front of its host; keys belong "
            "into spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key"
        )
    if "\0" in path or any(part in (".", "..") for part in path.split("/")):
        raise ConfigurationError(f"{setting} is {value!r}: write it without '.', '..' and NUL")
    if scheme in S3_SCHEMES and not authority:
        raise ConfigurationError(
            f"{setting} is {value!r}: it names no bucket; write {scheme}://<bucket>/<path>"
        )
    if not path:
        raise ConfigurationError(
            f"{setting} is {value!r}: it names no directory; write {scheme}://{authority}/<path>"
        )
    return f"{scheme}://{authority}/{path}"


def open_directory(uri: str, settings: HadoopSettings | None = None) -> Directory:
    """Return the files below `uri`, which is as `shared_uri` returns it, or a ``file:`` URI.

    Touches nothing yet. Raises MissingDependencyError when the store's client is not installed, and
    ConfigurationError for a setting that it cannot follow. Clients are kept for the process, one
    for each store and settings.
    """
    settings = settings or HadoopSettings()
    scheme = uri.split(":", 1)[0] if _URI.fullmatch(uri) else "file"
    if scheme == "hdfs":
        from tidemark.file_systems.hdfs import HdfsDirectory

        return HdfsDirectory(uri, settings)
    if scheme in S3_SCHEMES:
        from tidemark.file_systems.s3 import S3Directory

        return S3Directory(uri, settings)
    return LocalDirectory(local_path(uri, "directory"))

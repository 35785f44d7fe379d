"""Copies files of savepoints one by one, in pieces: a file of rows may be large.

`state/files.py` copies many at once.
"""

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from seamark.files import Directory
from seamark.files.location import local_of


class Copy(Protocol):
    """The function returned by `copier`."""

    def __call__(self, path: str, to: str = "") -> tuple[int, int]:
        """Copy the file `path`, relative to both directories, or to `to` in the new one; return its
        bytes and CRC-32. Raises FileNotFoundError; the new file must not exist."""


def copier(source: Directory, target: Directory, spark: Callable[[], SparkSession]) -> Copy:
    """Return a function that copies one file between two directories. Unless both are local, it
    calls `spark` for a session and uses its file systems."""
    old, new = (local_of(files.uri) for files in (source, target))
    if old is not None and new is not None:
        return lambda path, to="": _copy_local(Path(old, path), Path(new, to or path))
    session = spark()
    return lambda path, to="": _copy_hadoop(
        session, f"{source.uri}/{path}", f"{target.uri}/{to or path}"
    )


def _copy_local(old: Path, new: Path) -> tuple[int, int]:
    new.parent.mkdir(parents=True, exist_ok=True)
    crc = 0
    with old.open("rb") as given, new.open("xb") as made:
        while data := given.read(1 << 20):
            crc = zlib.crc32(data, crc)
            made.write(data)
        made.flush()
        os.fsync(made.fileno())
    shutil.copymode(old, new)
    return new.stat().st_size, crc


def _copy_hadoop(spark: SparkSession, old: str, new: str) -> tuple[int, int]:
    jvm: Any = spark._jvm
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    paths = [jvm.org.apache.hadoop.fs.Path(path) for path in (old, new)]
    given, made = (path.getFileSystem(hadoop) for path in paths)
    if not given.exists(paths[0]):
        raise FileNotFoundError(old)
    seen = jvm.java.util.zip.CRC32()
    reader = jvm.java.util.zip.CheckedInputStream(given.open(paths[0]), seen)
    try:
        writer = made.create(paths[1], False)
        try:
            size = jvm.org.apache.commons.io.IOUtils.copyLarge(reader, writer)
        finally:
            writer.close()
    finally:
        reader.close()
    return int(size), int(seen.getValue())

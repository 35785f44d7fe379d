"""`CheckpointFiles` on any Hadoop file system, through Spark's own `CheckpointFileManager`.

Local directories are served by `checkpoint/local_files.py`; `open_files` chooses.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidemark.checkpoint.local_files import LocalFiles
from tidemark.contracts.checkpoint_files import CheckpointFiles
from tidemark.model.errors import CorruptRecordError, PreflightError

_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager"

_LISTED_FILE = re.compile(r"path=([^;]*); isDirectory=false; length=(\d+);")
"""A file in the text that Hadoop's FileStatus gives of itself."""


def open_files(spark: SparkSession, uri: str, *, make: bool = True) -> CheckpointFiles:
    """Return the files below `uri` (a URI that Spark's checkpoint location takes); the directory is
    made if it is missing, unless `make` is False."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return LocalFiles(unquote(parts.path) if parts.scheme else uri, make=make)
    return HadoopFiles(spark, uri, make=make)


class HadoopFiles:
    """Records below one directory of a Hadoop file system.

    `create` is as exclusive as `createAtomic(path, overwriteIfPossible=false)` of the manager that
    Spark chooses for the scheme: HDFS renames without overwriting in the name node.
    """

    def __init__(self, spark: SparkSession, uri: str, *, make: bool = True) -> None:
        self._uri = uri.rstrip("/")
        self._jvm: Any = spark._jvm
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()
        try:
            manager = getattr(self._jvm, _MANAGER)
            self._files = manager.create(self._path(""), self._configuration)
            if make:
                self._files.mkdirs(self._path(""))
        except Py4JJavaError as error:
            raise PreflightError(
                f"checkpoint storage {uri}: {error.java_exception.getMessage()}; check the address "
                "and that the jars and credentials of this file system are on Spark's class path"
            ) from error

    @property
    def uri(self) -> str:
        """The directory's URI."""
        return self._uri

    def create(self, path: str, data: bytes) -> None:
        """Create the file atomically, unless there is one."""
        target = self._path(path)
        try:
            self._files.mkdirs(target.getParent())
            stream = self._files.createAtomic(target, False)
            try:
                stream.write(bytearray(data))
                stream.close()
            except BaseException:
                stream.cancel()
                raise
        except Py4JJavaError as error:
            if "FileAlreadyExists" in error.java_exception.getClass().getName():
                raise FileExistsError(f"{self._uri}/{path}") from None
            raise

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        target = self._path(path)
        if not self._files.exists(target):
            raise FileNotFoundError(f"{self._uri}/{path}")
        stream = self._files.open(target)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def exists(self, path: str) -> bool:
        """Whether the file exists now."""
        return bool(self._files.exists(self._path(path)))

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, without hidden and temporary ones."""
        target = self._path(path)
        if not self._files.exists(target):
            return []
        names = [status.getPath().getName() for status in self._files.list(target)]
        return [name for name in names if not name.startswith(".")]

    def sizes(self, pattern: str) -> dict[str, int]:
        """Return the files that match a pattern, with their bytes."""
        target = self._path(pattern)
        system = target.getFileSystem(self._configuration)
        root = str(system.makeQualified(self._path("")).toUri().getPath()).rstrip("/") + "/"
        # One text for all of them: a call into the JVM for each file would take too long.
        listed = str(self._jvm.java.util.Arrays.toString(system.globStatus(target)))
        found = {}
        for path, length in _LISTED_FILE.findall(listed):
            name = unquote(urlsplit(path).path)[len(root) :]
            if not name.rsplit("/", 1)[-1].startswith("."):
                found[name] = int(length)
        return found

    def delete(self, path: str) -> None:
        """Delete a file or directory; a missing one is fine."""
        self._files.delete(self._path(path))

    def check(self, path: str) -> int:
        """Read the file through, which makes the file system compare its own checksums."""
        target = self._path(path)
        if not self._files.exists(target):
            raise FileNotFoundError(f"{self._uri}/{path}")
        try:
            stream = self._files.open(target)
            try:
                return int(self._jvm.org.apache.commons.io.IOUtils.consume(stream))
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise CorruptRecordError(
                f"{self._uri}/{path}: it cannot be read: {error.java_exception.getMessage()}"
            ) from error

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._uri}/{path}" if path else self._uri)

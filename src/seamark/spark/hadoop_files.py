"""`Directory` on every Hadoop file system but the local (`files/local.py`), by the driver's JVM.

Exclusive create is a conditional write on ``s3a:`` and ``gs:``. Elsewhere it is a rename without
overwriting; on HDFS the NameNode does this rename in one step. docs/operations/storage.md has the
table, and `checkpoint/storage_check.py` tries it out at each start.
"""

import functools
import re
import secrets
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any
from xml.etree import ElementTree

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from seamark.files import Directory, HadoopSettings
from seamark.files.deadline import open_local, with_deadlines
from seamark.files.directory import visible
from seamark.files.location import local_of
from seamark.model.errors import CorruptRecordError, PreflightError
from seamark.model.ignored import ignored
from seamark.spark.session import require_storage

_CLIENT_SETTINGS = {
    # One request has the object and its condition, instead of two.
    "fs.gs.outputstream.direct.upload.enable": "true",
    # Hadoop's own values let one call try for minutes.
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "3",
    "fs.s3a.retry.interval": "500ms",
    "fs.s3a.connection.establish.timeout": "15s",
    "fs.s3a.connection.timeout": "20s",
    "fs.s3a.connection.request.timeout": "20s",
    "dfs.client.socket-timeout": "20000",
    "ipc.client.rpc-timeout.ms": "20000",
    "ipc.client.connect.timeout": "10000",
    "ipc.client.connect.max.retries.on.timeouts": "2",
}
"""Settings of the clients that read and write records, unless the user has set them."""

_CONDITIONAL = "fs.option.create.conditional.overwrite"
_TOKEN = "seamark-create"
_CONFLICT_RETRIES = 5
_TREE_TRIES = 5

_DAMAGE = ("ChecksumException", "BlockMissingException")
_PATH = r"path=([^;]*(?:;(?! isDirectory=)[^;]*)*); isDirectory="
_LISTED = re.compile(_PATH)
_LISTED_FILE = re.compile(rf"{_PATH}false; length=(\d+);")
"""Matches any entry (`_LISTED`), or a file, in the text of Hadoop's FileStatus."""


def open_files(spark: SparkSession, uri: str, *, make: bool = True) -> Directory:
    """Return the files below `uri`, a URI valid as Spark's checkpoint location.

    Makes a missing local directory, unless `make` is False. Sends no request to any other store
    yet. No call on the files hangs. Raises MissingDependencyError when the session lacks the
    scheme's jars, PreflightError when the URI cannot be used, StorageHangsError when the directory
    does not answer.
    """
    local = local_of(uri)
    if local is not None:
        _require_same_names(spark, local)
        return open_local(local, make=make)
    return with_deadlines(HadoopFiles(spark, uri))


def _require_same_names(spark: SparkSession, local: str) -> None:
    """Raise PreflightError if Spark's JVM cannot name this directory. In a locale without its
    characters, the JVM puts a ``?`` for each, or fails, later and elsewhere."""
    if local.isascii():
        return
    jvm: Any = spark._jvm
    try:
        jvm.java.io.File(local).toPath()
    except IllegalArgumentException:  # Java's InvalidPathException
        encoding = jvm.java.lang.System.getProperty("sun.jnu.encoding")
        raise PreflightError(
            f"checkpoint storage {local}: the locale of Spark's JVM ({encoding}) lacks characters "
            "of this path, and Spark would use another directory; set LC_ALL=C.UTF-8 for it, or "
            "give a path in ASCII"
        ) from None


class HadoopFiles:
    """Records below one directory of a Hadoop file system.

    A call raises OSError, after the client's own retries, if the store refuses it or does not
    answer. The store may or may not have done the call then.
    """

    def __init__(self, spark: SparkSession, uri: str) -> None:
        require_storage(spark, uri)  # before Hadoop looks for the scheme: it remembers a failure
        self.uri = uri.rstrip("/")
        self._jvm: Any = spark._jvm
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        for key, value in _CLIENT_SETTINGS.items():
            if list(configuration.getPropertySources(key) or ()) in ([], ["core-default.xml"]):
                configuration.set(key, value)
        try:
            # Not Spark's own file system object: it has Spark's deadlines.
            location = self._path("").toUri()
            self._files = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(
                location, configuration
            )
        except (Py4JError, CapturedException) as error:
            raise PreflightError(
                f"checkpoint storage {uri}: {_said(error)}; check the address and that the jars of "
                "this file system are on Spark's class path"
            ) from error
        self._scheme = str(self._files.getScheme())
        weakref.finalize(self, _unused().put, self._files).atexit = False

    def create(self, path: str, data: bytes) -> None:
        """Create the file atomically; raise FileExistsError if it exists."""
        with _os_errors(f"{self.uri}/{path}"):
            if self._scheme == "s3a":
                self._create_by_condition(path, data)
            elif self._scheme == "gs":
                self._create_by_generation(path, data)
            else:
                self._create_by_rename(path, data)

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        with _os_errors(f"{self.uri}/{path}"):
            stream = self._files.open(self._path(path))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

    def exists(self, path: str) -> bool:
        """Tell whether the file exists now."""
        with _os_errors(f"{self.uri}/{path}"):
            return bool(self._files.exists(self._path(path)))

    def size(self, path: str) -> int | None:
        """Return a file's bytes."""
        try:
            with _os_errors(f"{self.uri}/{path}"):
                return int(self._files.getFileStatus(self._path(path)).getLen())
        except FileNotFoundError:
            return None

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, without hidden and temporary ones."""
        try:
            with _os_errors(f"{self.uri}/{path}"):
                statuses = self._files.listStatus(self._path(path))
        except FileNotFoundError:
            return []
        return visible(path.rpartition("/")[2] for path in _LISTED.findall(self._text(statuses)))

    def tree(self, path: str = "") -> dict[str, int]:
        """Return every file below `path`, hidden ones too."""
        top = len(_below_host(str(self._files.makeQualified(self._path("")))).rstrip("/")) + 1
        listed = _LISTED_FILE.findall(self._tree(path))
        return {_below_host(name)[top:]: int(length) for name, length in listed}

    def _tree(self, path: str) -> str:
        """List all files below a directory, as one text."""
        remote = self._jvm.org.apache.hadoop.util.functional.RemoteIterators
        for _ in range(_TREE_TRIES):
            try:
                with _os_errors(f"{self.uri}/{path}"):
                    statuses = remote.toList(self._files.listFiles(self._path(path), True))
                    return str(statuses.toString())
            except FileNotFoundError:  # it, or a directory below it, was deleted meanwhile
                if not self.exists(path):
                    return ""
        raise OSError(f"{self.uri}/{path}: directories vanish while it is listed")

    def delete(self, path: str) -> None:
        """Delete a file or directory; a missing one is fine."""
        with _os_errors(f"{self.uri}/{path}"):
            self._files.delete(self._path(path), True)

    def remove(self, path: str) -> None:
        """Delete one file."""
        with _os_errors(f"{self.uri}/{path}"):
            self._files.delete(self._path(path), False)

    def remove_empty(self) -> None:
        """Delete every directory without files."""
        self._remove_empty(self._path(""))

    def _remove_empty(self, directory: Any) -> None:
        with suppress(FileNotFoundError), _os_errors(self.uri):
            for status in self._files.listStatus(directory):
                if status.isDirectory():
                    self._remove_empty(status.getPath())
            try:
                self._files.delete(directory, False)
            except Py4JJavaError as error:
                if "NotEmpty" not in _name(error):  # Google's connector has an exception of its own
                    raise

    def _text(self, statuses: Any) -> str:
        """Return the text of an array of FileStatus in one call: a call into the JVM for each file
        would take too long."""
        return str(self._jvm.scala.runtime.ScalaRunTime.stringOf(statuses))

    def _create_by_rename(self, path: str, data: bytes) -> None:
        target = self._path(path)
        name = f".{target.getName()}.{secrets.token_hex(8)}.tmp"
        temporary = self._jvm.org.apache.hadoop.fs.Path(target.getParent(), name)
        try:
            stream = self._files.create(temporary, True)
            try:
                stream.write(bytearray(data))
                stream.hsync()  # on the DataNodes' disks, not only in their memory
            finally:
                stream.close()
            if not self._files.rename(temporary, target):
                if self._files.exists(target):
                    raise FileExistsError(f"{self.uri}/{path}")
                raise OSError(f"{self.uri}/{path}: the rename to it was refused")
        except BaseException:
            with suppress(Py4JError):
                self._files.delete(temporary, False)
            raise

    def _create_by_condition(self, path: str, data: bytes) -> None:
        target, token = self._path(path), secrets.token_hex(16)
        for attempt in range(_CONFLICT_RETRIES):
            try:
                builder = self._files.createFile(target)
                builder.overwrite(True)
                builder.must(_CONDITIONAL, True)
                builder.opt("fs.s3a.create.performance", True)  # asks nothing before the write
                builder.opt(f"fs.s3a.create.header.{_TOKEN}", token)
                stream = builder.build()
                stream.write(bytearray(data))
                stream.close()
                return
            except Py4JJavaError as error:
                text = str(error.java_exception)
                if "409" in text and attempt + 1 < _CONFLICT_RETRIES:
                    continue  # S3: another client writes or deletes this key; ask again
                if "RemoteFileChanged" not in text and "FileAlreadyExists" not in text:
                    raise
                # The client repeats a write after a lost answer, and then finds its own file.
                if self._is_ours(target, token):
                    return
                raise FileExistsError(f"{self.uri}/{path}") from None

    def _create_by_generation(self, path: str, data: bytes) -> None:
        """Write an object on condition that it has no generation yet. A repetition after a lost
        answer may find its own object; `envelope.create_record` reads a record back."""
        try:
            stream = self._files.create(self._path(path), False)
            stream.write(bytearray(data))
            stream.close()
        except Py4JJavaError as error:
            message = str(error)
            if "FileAlreadyExists" not in message and "412 Precondition Failed" not in message:
                raise
            raise FileExistsError(f"{self.uri}/{path}") from None

    def _is_ours(self, target: Any, token: str) -> bool:
        try:
            attribute = self._files.getXAttr(target, f"header.{_TOKEN}")
        except Py4JError:
            return False
        return attribute is not None and bytes(attribute).decode() == token

    def check(self, path: str) -> int:
        """Read the file through: the file system compares its own checksums meanwhile. Raises
        CorruptRecordError if they differ, or if HDFS has lost a block."""
        try:
            with _os_errors(f"{self.uri}/{path}"):
                stream = self._files.open(self._path(path))
                try:
                    return int(self._jvm.org.apache.commons.io.IOUtils.consume(stream))
                finally:
                    stream.close()
        except OSError as error:
            if isinstance(cause := error.__cause__, Py4JJavaError) and _name(cause) in _DAMAGE:
                raise CorruptRecordError(f"it cannot be read: {error}") from error
            raise  # a store that is away: its file may be whole

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.uri}/{path}" if path else self.uri)


def _below_host(path: str) -> str:
    """Return the path in the text of Hadoop's `Path.toString`, which encodes nothing."""
    return re.sub(r"^[^:/]+:(//[^/]*)?", "", path)


@functools.cache
def _unused() -> SimpleQueue[Any]:
    """Return the queue of file systems to close. A thread of its own closes them. A finalizer must
    not: it may run in the middle of a py4j call of its thread, and would read that call's
    answer."""
    systems: SimpleQueue[Any] = SimpleQueue()

    def close() -> None:
        while True:
            with ignored("the end of a file system's client"):  # the JVM may be gone
                systems.get().close()

    threading.Thread(target=close, name="seamark-close", daemon=True).start()
    return systems


_ERRORS: dict[str, type[OSError]] = {
    "FileAlreadyExistsException": FileExistsError,
    "FileNotFoundException": FileNotFoundError,
    "UnknownStoreException": FileNotFoundError,
    "AccessControlException": PermissionError,
    "AccessDeniedException": PermissionError,
    "NoAuthWithAWSException": PermissionError,
    "ConnectException": ConnectionError,
    "SocketTimeoutException": TimeoutError,
    "ConnectTimeoutException": TimeoutError,
}


@contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Raise Java's exceptions as the matching OSError."""
    try:
        yield
    except Py4JJavaError as error:
        raise _ERRORS.get(_name(error), OSError)(f"{path}: {_said(error)}") from error
    except (Py4JError, CapturedException) as error:  # the JVM is gone, or the address is invalid
        raise OSError(f"{path}: {error}") from error


def _said(error: Exception) -> str:
    """Return the first line of Java's message, with the exception's name."""
    if not isinstance(error, Py4JJavaError):
        return str(error).partition("\n")[0]
    message = str(error.java_exception.getMessage() or "").strip().splitlines() or [""]
    return f"{_name(error)}: {message[0]}"


def _name(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


_PREFIXES = ("fs.", "dfs.", "hadoop.security.")


def hadoop_settings(spark: SparkSession) -> HadoopSettings:
    """Return the session's file system settings: from ``core-site.xml``, ``hdfs-site.xml``,
    ``spark.hadoop.*`` and the session's own configuration, but not Hadoop's own defaults. Workers
    have no JVM to ask; they need these settings to reach HDFS and S3 (`files/`)."""
    jvm = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    # One call for all of them: each call into the JVM takes a third of a millisecond.
    text = jvm.java.io.StringWriter()
    configuration.writeXml(text)
    settings = {}
    for entry in ElementTree.fromstring(text.toString()).iter("property"):
        name, value = entry.findtext("name", ""), entry.findtext("value", "")
        sources = [source.text or "" for source in entry.iter("source")]
        if not name.startswith(_PREFIXES) or (sources and sources[-1].endswith("-default.xml")):
            continue
        if "${" in value:  # refers to another setting, or to the environment
            value = str(configuration.get(name) or "")
        settings[name] = value
    return HadoopSettings(settings)

"""Spark's settings for a job's state backend, set for its query alone.

At a query's first start, Spark writes the state store's class into the offset log. At every later
start it takes the class from there, whatever the session says; `check_backend` finds a difference
before the query starts. Changelog checkpointing comes from the session: users may switch it.
"""

import contextlib
import logging
import threading
from collections.abc import Container, Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from seamark.api.config import CheckpointConfig, StateBackend
from seamark.checkpoint.spark_files import log_version, read_log
from seamark.files import Directory, numbered
from seamark.model.errors import ConfigurationError, CorruptRecordError

log = logging.getLogger(__name__)

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state."
ROCKSDB_PROVIDER = _PACKAGE + "RocksDBStateStoreProvider"
_CLASSES = {
    StateBackend.HASHMAP: _PACKAGE + "HDFSBackedStateStoreProvider",
    StateBackend.ROCKSDB: ROCKSDB_PROVIDER,
}
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_SNAPSHOT_INTERVAL = "spark.sql.streaming.stateStore.minDeltasForSnapshot"

_starting = threading.Lock()
_lending = threading.RLock()  # a signal may come while it is held
_lent: dict[tuple[str, str], tuple[int, str | None]] = {}
"""By session and setting: how many queries use it, and the value before the first."""


def backend_settings(
    spark: SparkSession, config: CheckpointConfig, given: Container[str]
) -> dict[str, str]:
    """Return the Spark settings for the query to use this backend.

    A setting not among those `given` does not override a value of the session.
    """
    backend = StateBackend(config.state_backend)
    settings = {PROVIDER: ("state_backend", _CLASSES[backend])}
    if backend is StateBackend.ROCKSDB:
        settings[CHANGELOG] = ("changelog", str(config.changelog).lower())
    if config.changelog:
        interval = str(config.changelog_snapshot_interval)
        settings[_SNAPSHOT_INTERVAL] = ("changelog_snapshot_interval", interval)
    return {
        key: value
        for key, (setting, value) in settings.items()
        if setting in given or session_setting(spark, key, None) is None
    }


def given_format(spark: SparkSession) -> int | None:
    """Return the format of the state's files (1 or 2) that the user has set."""
    format_ = session_setting(spark, FORMAT, None)
    return int(format_) if format_ else None


def format_settings(
    job: str, given: int | None, spark_files: Directory, *, keyed: bool
) -> dict[str, str]:
    """Return the setting for the format of the state's files, unless one is `given`: that of the
    checkpoint, as Spark cannot change it. A new job with a `keyed_process` gets format 2, in which
    each attempt's files have names of their own (docs/keyed-process.md).

    Raises ConfigurationError if the format given is not the checkpoint's.
    """
    try:
        decided = numbered(spark_files.list("commits"))
        stored = log_version(spark_files, f"commits/{decided[-1]}") if decided else None
    except (OSError, ValueError):  # the start finds what is wrong
        return {}
    if given and stored and given != stored:
        raise ConfigurationError(
            f"Job {job!r}: {FORMAT} is {given}, but the state in {spark_files.uri} is of format "
            f"{stored}, and Spark cannot go on with it; leave the setting out, or restore a "
            "canonical savepoint, which goes into either"
        )
    return {FORMAT: "2"} if (stored or 1 + keyed) == 2 and not given else {}


def session_setting(spark: SparkSession, key: str, *default: str | None) -> Any:
    """Return a setting as ``spark.conf.get``, also while the session has a query's own."""
    with _lending:
        lent = _lent.get((str(spark._jsparkSession.sessionUUID()), key))
        if lent is None:
            return spark.conf.get(key, *default)
    if lent[1] is not None:
        return lent[1]
    return default[0] if default else spark._jsparkSession.newSession().conf().get(key)


def clone_session(spark: SparkSession) -> Any:
    """Return Java's clone of the session, without what it has of a query's own settings."""
    session = str(spark._jsparkSession.sessionUUID())
    with _lending:
        clone = spark._jsparkSession.cloneSession()
        for (of, key), (_, before) in _lent.items():
            if of == session and before is None:
                clone.conf().unset(key)
            elif of == session:
                clone.conf().set(key, before)
    return clone


@contextlib.contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set `settings` on the session while a query starts, then restore the earlier values.

    A query copies the session at its start. Seamark's own starts from several threads take turns; a
    query started by the user meanwhile may get these settings too.
    """
    with _starting, lent_settings(spark, settings):
        yield


@contextlib.contextmanager
def lent_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set `settings` on the session while a query runs: Spark reads them there, not in the query's
    copy. When the last of the session's queries with a setting has ended, its earlier value is
    back."""
    session = str(spark._jsparkSession.sessionUUID())
    with _lending:
        for key in settings:
            users, before = _lent.get((session, key), (0, spark.conf.get(key, None)))
            _lent[session, key] = users + 1, before
    try:
        with _lending:
            _put(spark, settings)
        yield
    finally:
        with _lending:
            for key in settings:
                users, before = _lent.pop((session, key))
                if users > 1:
                    _lent[session, key] = users - 1, before
                    continue
                try:
                    _put(spark, {key: before})
                except (Py4JError, OSError) as error:  # and with it the session
                    log.debug("%s is not put back: the JVM has ended (%s)", key, error)


def _put(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for key, value in settings.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def provider_of(backend: StateBackend) -> str:
    """Return Spark's class of a state backend."""
    return _CLASSES[backend]


def backend_of(provider: str) -> str:
    """Return the state backend's name for Spark's class; an unknown class keeps its own name."""
    names = {class_: backend.value for backend, class_ in _CLASSES.items()}
    return names.get(provider, provider)


def check_backend(job: str, spark_files: Directory, wanted: str, *, stateful: bool) -> None:
    """Raise ConfigurationError if the checkpoint's state is not of the backend `wanted` (a class).

    A checkpoint without state, of a stateless query, fits every backend.
    """
    epochs = numbered(spark_files.list("offsets"))
    if not epochs:
        return
    try:
        stored = read_log(spark_files, f"offsets/{epochs[-1]}")[0]["conf"][PROVIDER]
    except (CorruptRecordError, LookupError, TypeError):
        return  # older than this entry, or damaged: Spark says so itself
    if stored == wanted or not (stateful or spark_files.list("state")):
        return
    raise ConfigurationError(
        f"Job {job!r}: state_backend is {_named(wanted)}, but the state in {spark_files.uri} is of "
        f"{_named(stored)}, and Spark would go on with that unsaid; give "
        f"state_backend={_named(stored)}, or start with a new storage"
    )


def _named(provider: str) -> str:
    return repr(backend_of(provider))

"""Keeps secrets out of Seamark's own log lines while a job runs.

A failure comes in the words of its origin, a database driver or the user's code: for example with a
URL and its password. Records and answers are redacted where they are made (`Redactor`). The lines
of all loggers below ``seamark`` are redacted here. Seamark does not touch Spark's own log.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import SparkSession

from seamark.api.declarations import JobDeclaration
from seamark.files.location import Location
from seamark.model.redaction import Redactor, secrets_in

_lock = threading.Lock()
_redactors: list[Redactor] = []
_make_record: Callable[..., logging.LogRecord] | None = None
"""The factory of the records to redact; None until a job has run in this process."""


class RedactedLog:
    """While entered, redacts every line of Seamark's log in this process with `redactor`."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __enter__(self) -> None:
        global _make_record
        with _lock:
            if _make_record is None:
                # The factory: a filter would have to be added to each module's logger, even for
                # modules imported later.
                _make_record = logging.getLogRecordFactory()
                logging.setLogRecordFactory(_redacted_record)
            _redactors.append(self._redactor)

    def __exit__(self, *_: object) -> None:
        with _lock:
            _redactors.remove(self._redactor)


def _redacted_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    assert _make_record is not None
    record = _make_record(*args, **kwargs)
    if not _redactors or not f"{record.name}.".startswith("seamark."):
        return record
    if record.exc_info:  # its trace has the words of drivers and users
        trace = logging.Formatter().formatException(record.exc_info)
        record.exc_info, record.exc_text = None, _redacted(trace)
    try:
        text = record.getMessage()
    except Exception:  # the handlers say so
        return record
    if (shown := _redacted(text)) != text:  # else it keeps its form: collectors group lines by it
        record.msg, record.args = shown, None
    return record


def _redacted(text: str) -> str:
    for redactor in tuple(_redactors):
        text = redactor(text)
    return text


def job_redactor(
    spark: SparkSession, declared: JobDeclaration, storage: str, more_secrets: Iterable[str] = ()
) -> Redactor:
    """Return a redactor for the secrets of the job's sinks, of Spark's settings and of the
    environment, and for `more_secrets`. It leaves the parts of the job's names and of the URI
    `storage` readable: an access key may equal its bucket's name, and paths must be whole."""
    at = Location.parse(storage, "storage")
    host = at.authority.rpartition("@")[2].partition(":")[0]
    names = (declared.name, *declared.sources, *declared.operators, *declared.sinks, host, at.path)
    settings = dict(spark.sparkContext.getConf().getAll())
    sinks = [declaration.sink for declaration in declared.sinks.values()]
    secrets = secrets_in([sinks, settings, dict(os.environ)])
    return Redactor(secrets.union(more_secrets), names)

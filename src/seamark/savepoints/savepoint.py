"""`sm.Savepoint`: a savepoint offline, in a program or a notebook; `edit/state.py` does the
work."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from seamark.api.config import storage_uri
from seamark.runtime.hadoop_files import open_files
from seamark.runtime.session import spark_session
from seamark.savepoints import record
from seamark.savepoints.edit import state as editing
from seamark.savepoints.edit.diff import Difference, diff


class Savepoint:
    """A canonical savepoint at `path`, a directory on any file system that Spark reaches.

    Only ``savepoint.json`` is read at first. Uses the active Spark session, or makes one. Raises
    SavepointError if there is no whole savepoint.
    """

    def __init__(self, path: str | Path) -> None:
        self._spark = spark_session("seamark savepoint")
        uri = storage_uri(path, "savepoint")
        self.record = record.read_savepoint(open_files(self._spark, uri, make=False))
        """What ``savepoint.json`` says: job, epoch, sources with offsets, operators with schemas,
        rows and bytes, committables of sinks."""

    @property
    def path(self) -> str:
        """The directory's URI."""
        return self.record.uri

    def read_state(
        self, uid: str, *, family: str | None = None, store: str | None = None
    ) -> DataFrame:
        """Return the state of an operator: columns `key` and `value`, both structs, and `sequence`,
        the place of a value in a list state (else null).

        `family`: the state variable of a `transformWithState`; `store`: of a join, which has
        several: ``left`` and ``right`` are the rows of its sides. Raises SavepointError naming
        those there are.
        """
        return editing.read_state(self._spark, self.record, uid, family=family, store=store)

    def with_state(
        self,
        uid: str,
        state: DataFrame,
        *,
        to: str | Path,
        family: str | None = None,
        store: str | None = None,
    ) -> Savepoint:
        """Write a savepoint into the new directory `to` in which the operator has `state` instead
        of its own, with everything else as it is here, and return it.

        `state` is as `read_state` gives it, with the same `family` and `store`, one row for each
        key. What Spark keeps beside it (a join's counts, a list's, the index of what expires or of
        timers) is made to agree. Raises SavepointError if `state` has other columns or contradicts
        itself, as sessions of one key that overlap.
        """
        target = storage_uri(to, "savepoint")
        editing.with_state(self._spark, self.record, uid, state, target, family=family, store=store)
        return Savepoint(target)

    def diff(self, other: Savepoint) -> list[Difference]:
        """Return what is different in `other`, by what the two ``savepoint.json`` say."""
        return diff(self.record, other.record)

"""`sm.Savepoint`: a savepoint offline, in a program or notebook; by `edit/state.py`."""

from pathlib import Path

from pyspark.sql import DataFrame

from seamark.files.location import storage_uri
from seamark.savepoints import record
from seamark.savepoints.edit import state as editing
from seamark.savepoints.edit.diff import Difference, diff
from seamark.spark.hadoop_files import open_files
from seamark.spark.session import spark_session


class Savepoint:
    """A savepoint at `path`, a directory on any file system that Spark reaches; `read_state` and
    `with_state` need a canonical one. Reads only ``savepoint.json`` at first. Uses the active Spark
    session, or makes one. Raises SavepointError if there is no whole savepoint, CorruptRecordError
    if its record is damaged."""

    def __init__(self, path: str | Path) -> None:
        self._spark = spark_session("seamark savepoint")
        uri = storage_uri(path, "savepoint")
        self.record = record.read_savepoint(open_files(self._spark, uri, make=False))
        """The content of ``savepoint.json``: job, epoch, sources with offsets, operators with
        schemas, rows and bytes, committables of sinks."""

    @property
    def path(self) -> str:
        """The directory's URI."""
        return self.record.uri

    def read_state(
        self, uid: str, *, family: str | None = None, store: str | None = None
    ) -> DataFrame:
        """Return an operator's state: columns `key` and `value`, both structs, and `sequence`, the
        place of a value in a list state (else null). `family`: the state variable of a
        `transformWithState`. `store`: the side of a join, ``left`` or ``right``, for its rows.
        Raises SavepointError with the existing names."""
        return editing.read_state(self._spark, self.record, uid, family=family, store=store)

    def with_state(
        self,
        uid: str,
        state: DataFrame,
        *,
        to: str | Path,
        family: str | None = None,
        store: str | None = None,
    ) -> "Savepoint":
        """Write a savepoint into the new directory `to` with `state` in place of the operator's
        own, and return it. Everything else is as in this savepoint.

        `state` has the form returned by `read_state` with the same `family` and `store`, one row
        for each key. Seamark makes Spark's dependent state agree with it: the counts of a join or a
        list, the indexes of timers and of expiring values. Raises SavepointError if `state` has
        other columns or contradicts itself, for example with overlapping sessions of one key;
        DamagedCheckpointError, with nothing written, if this savepoint is damaged.
        """
        target = storage_uri(to, "savepoint")
        editing.with_state(self._spark, self.record, uid, state, target, family=family, store=store)
        return Savepoint(target)

    def diff(self, other: "Savepoint") -> list[Difference]:
        """Return the differences in `other`, by the two ``savepoint.json``."""
        return diff(self.record, other.record)

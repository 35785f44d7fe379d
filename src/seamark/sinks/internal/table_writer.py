"""Task side of a sink that puts data files into a table's directory: durable on `prepare_commit`,
and not yet named by the table."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from seamark.contracts.attempt_name import AttemptName, owner_path
from seamark.contracts.dead_letters import RefusedRow, without
from seamark.contracts.sink import WriterContext
from seamark.files import RowDirectory
from seamark.model import failpoints
from seamark.model.ignored import ignored
from seamark.sinks.internal import changes, pending_files, stored
from seamark.sinks.internal.data_files import DataFiles, WrittenFile
from seamark.sinks.internal.table_committable import TableCommittable

C = TypeVar("C", bound=TableCommittable)


class TableWriter(ABC, Generic[C]):
    """One attempt's writer. Touches nothing without a row; `_begin` comes before the first."""

    def __init__(self, context: WriterContext, target: str) -> None:
        self._target = target
        self._handle = str(AttemptName.of(context, owner_path(context)))
        self._log_version = 0
        self._files: RowDirectory | None = None
        self._data: DataFiles[Any] | None = None
        self._records = 0
        self._rows = 0

    @abstractmethod
    def _begin(self) -> None:
        """Find the table: set `_files`, `_log_version` and `_data`."""

    @abstractmethod
    def _unfit(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        """Return the rows that the table cannot hold."""

    @abstractmethod
    def _described(self, file: WrittenFile[Any]) -> str:
        """Return the JSON text of a file for the committable."""

    @abstractmethod
    def _committable(self, files: tuple[str, ...] = ()) -> C:
        """Return the attempt's committable."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one batch. Raises WriteRefusedError if this machine does not see the table, and
        for a row that the table cannot hold."""
        changes.require_fit(self._unfit(batch), self._target)
        self._take(batch)

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`."""
        refused = self._unfit(batch)
        self._take(without(batch, refused))
        return refused

    def last_targets(self) -> None:
        """See `AccountableWriter`: a task's files have its rows' sums together."""

    def prepare_commit(self) -> Sequence[C]:
        """Make the data files durable."""
        if self._data is None:
            return []
        files = tuple(map(self._described, self._data.close()))
        failpoints.reached("data-files-written")
        return [self._committable(files)] if files else []  # none: every row was refused

    def abort(self) -> None:
        """Delete the data files; leftovers are lingering."""
        if self._data is None or self._files is None:
            return
        if self._data.discard():
            with ignored("the deletion of an attempt's records"):
                stored.delete(self._files, pending_files.records(self._committable()))

    def _take(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._data is None:
            self._begin()
        assert self._data is not None
        self._data.write(batch)
        self._rows += batch.num_rows

    def _announce(self, paths: Sequence[str]) -> None:
        assert self._files is not None
        self._records += 1
        pending_files.write(self._files, self._committable(), paths)

"""Task side: writes Arrow batches into one durable Arrow IPC file beside the database."""

import re
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seamark.contracts.dead_letters import Refusals, RefusedRow, without
from seamark.contracts.sink import WriterContext
from seamark.model.errors import WriteRefusedError
from seamark.model.schema import Column
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import datetimes_as_text, not_utf8
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.sifting import sift
from seamark.sinks.internal.staged_files import StagedFile, StagedFileWriter, new_handle
from seamark.sinks.sqlite import database, merging
from seamark.sinks.sqlite.database import Target

if TYPE_CHECKING:
    from seamark.sinks.sqlite.sink import SQLiteSink

_CONSTRAINT = re.compile(
    r"\b(NOT\s+NULL|CHECK|STRICT|UNIQUE|PRIMARY\s+KEY|AS|INDEX)\b", re.IGNORECASE
)
_ENDS_ALL = re.compile(r"\bON\s+CONFLICT\s+ROLLBACK\b", re.IGNORECASE)
_KEY = re.compile(r"\b(UNIQUE|PRIMARY\s+KEY)\b", re.IGNORECASE)


class SQLiteWriter(StagedFileWriter):
    """One attempt's writer. Writes no file without a row."""

    def __init__(self, sink: "SQLiteSink", context: WriterContext) -> None:
        self._handle = new_handle(context, "arrow")
        super().__init__(sink.staging_root, self._handle)
        self._target = sink.target
        self._context = context
        self._ipc: pa.RecordBatchFileWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one batch to the staged file.

        Raises WriteRefusedError at the first batch, if the table exists and cannot take it, or if
        this machine does not share the database's directory with the driver; and for a row that is
        no change.
        """
        if batch.num_rows == 0:
            return
        at = self._target
        changes.require_fit(self._unfit(batch), f"SQLite table {at.table} in {at.path}")
        batch = merging.described(datetimes_as_text(batch), at)
        if self._ipc is None:
            self._check_table(batch.schema.names)
            self._ipc = pa.ipc.new_file(self._create(), batch.schema)
        self._ipc.write_batch(batch)
        self._rows += batch.num_rows

    def prepare_commit(self) -> Sequence[StagedFile]:
        """Make the staged file and its directory entry durable."""
        if self._ipc is None or self._file is None:
            return []
        self._ipc.close()  # once: each call writes the footer
        size = self._flush(self._file)
        return [StagedFile.of(self._context, self._handle, self._rows, size_bytes=size)]

    def _unfit(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        at = self._target
        refused = Refusals(changes.unfit(batch, at.keys, at.op, nan_is_null=True))
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if (bad := not_utf8(column)).any() and database.is_utf16(at.path):
                refused.add(bad, f"its column {name!r} is not UTF-8, and the database is UTF-16")
        return refused.rows()

    def _check_table(self, names: Sequence[str]) -> None:
        """Raise WriteRefusedError for a misfit that would stop the job after the decision."""
        columns = tuple(Column(name, "") for name in names)
        for why, remedy in database.misfits(self._target, columns):
            raise WriteRefusedError(f"{why}; {remedy}")


class SelectiveSQLiteWriter(SQLiteWriter):
    """See `SelectiveWriter`. Finds rows the table would refuse, before the decision, by inserting
    them into a copy of it.

    SQLite inserts after the decision, too late to refuse a row. The copy is empty, private to the
    attempt and thrown away; a table without constraints needs none. It has the table's own
    constraints (NOT NULL, CHECK, STRICT types, unique keys), so it finds the faults of a row by
    itself and within the attempt. It cannot find a key already used by another task, an earlier
    epoch or another program: such a key still stops the job at the commit, and so does a trigger
    that raises.
    """

    def __init__(self, sink: "SQLiteSink", context: WriterContext) -> None:
        super().__init__(sink, context)
        self._copy: _TableCopy | None = None

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`."""
        if batch.num_rows == 0:
            return ()
        if self._copy is None:
            self._check_table(batch.schema.names)
            at = self._target
            self._copy = _TableCopy(at, database.definition(at.path, at.table))
        refused = changes.take_others(batch, self._unfit(batch), self._copy.refused)
        self.write(without(batch, refused))
        return refused

    def prepare_commit(self) -> Sequence[Any]:
        """Make the staged file and its directory entry durable."""
        self._forget()
        return super().prepare_commit()

    def abort(self) -> None:
        """Remove the staged file; leftovers are lingering."""
        self._forget()
        super().abort()

    def _forget(self) -> None:
        if self._copy is not None:
            self._copy.close()


class _TableCopy:
    """An empty table of the same definition, in a database of its own."""

    def __init__(self, target: Target, definition: Sequence[str]) -> None:
        text = " ".join(definition)
        self._target = target
        self._connection: sqlite3.Connection | None = None
        # Without a key no row depends on another, so none is kept; nor do changes of keys.
        self._keeps_rows = bool(_KEY.search(text)) and not target.keys
        if _CONSTRAINT.search(text):
            self._connection = database.open_scratch()
            self._cursor = self._connection.cursor()
            for statement in definition:  # the copy's rows must outlive a refused one
                self._cursor.execute(_ENDS_ALL.sub("ON CONFLICT ABORT", statement))
            self._cursor.execute("BEGIN")

    def refused(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        """Return the rows refused by the table; the others are in the copy now."""
        if self._connection is None:
            return []
        rows = datetimes_as_text(batch)
        if not self._target.keys:
            return self._sifted(rows)
        written = merging.newest(rows, self._target)
        op = [self._target.op] if self._target.op else []
        refusals = self._sifted(rows.drop_columns(op).take(pa.array(written)))
        return [RefusedRow(int(written[row.index]), row.reason) for row in refusals]

    def _sifted(self, rows: pa.RecordBatch) -> list[RefusedRow]:
        return sift(rows.num_rows, lambda start, end: self._take(rows.slice(start, end - start)))

    def _take(self, batch: pa.RecordBatch) -> str:
        why = ""
        self._cursor.execute("SAVEPOINT seamark")
        try:
            database.insert(self._cursor, quoted(self._target.table), batch)
        except sqlite3.Error as error:
            if database.may_pass(error):
                raise
            why = str(error)  # a constraint's, or of a function in one: "malformed JSON"
        if why or not self._keeps_rows:
            self._cursor.execute("ROLLBACK TO seamark")
        self._cursor.execute("RELEASE seamark")
        return why

    def close(self) -> None:
        """Throw the copy away."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

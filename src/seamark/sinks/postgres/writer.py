"""The common part of all modes' writers: one connection, one transaction, COPY into a table.

`write` sends all batches through one COPY. `write_accepted` runs one COPY per batch, behind a
savepoint; it finds the rows refused by the server by copying smaller and smaller parts.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from seamark.contracts.dead_letters import RefusedRow
from seamark.contracts.sink import WriterContext
from seamark.model import failpoints
from seamark.model.errors import PreCommitError, WriteRefusedError
from seamark.model.ignored import ignored
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.columns import written_columns
from seamark.sinks.internal.sifting import sift
from seamark.sinks.postgres import copy_format
from seamark.sinks.postgres.committable import PostgresCommittable
from seamark.sinks.postgres.connection import BEGIN, Server, blames_a_row, driver, may_pass, within
from seamark.sinks.postgres.table import Column, Table, describe, targets, volatile_parts

_COPY_LINE = re.compile(r"\bCOPY .*?, line (\d+)")
_REMEDIES = {
    "53200": "If the limit of prepared transactions is what was reached: raise "
    "max_prepared_transactions above twice the number of tasks, or use mode='staged'",
    "55P03": "Another transaction holds the rows or the table. If it is a prepared one of this "
    "job, a task was run twice, and it is rolled back when the job starts again; with unique "
    "keys in the table and tasks that are retried, mode='staged' never waits so",
}


class CopyWriter:
    """One attempt. Connects at the first row. A subclass chooses the table (`_begin`) and makes the
    rows durable (`_flush`)."""

    def __init__(self, server: Server, table: str, context: WriterContext) -> None:
        self._server = server
        self._table = table
        self._context = context
        self._connection: Any = None
        self._copy_statement = ""
        self._copy: Any = None
        self._copying: Any = None
        self._columns: list[Column] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Send one batch.

        Raises WriteRefusedError for a value without a form in its column's type. The server may
        report its own refusals only after all rows are sent, in `prepare_commit`.
        """
        if batch.num_rows == 0:
            return
        with self._errors():
            if self._connection is None:
                self._start(batch.schema)
            try:
                sent = copy_format.rows(batch, [column.type for column in self._columns])
            except (ValueError, pa.ArrowInvalid) as error:
                raise WriteRefusedError(f"{self._name}: {self._server.said(error)}") from error
            with self._within():
                if self._copying is None:
                    self._copying = self._connection.cursor().copy(self._copy_statement)
                    self._copy = self._copying.__enter__()
                    self._copy.write(copy_format.HEADER)
                self._copy.write(sent)
        self._taken(batch.num_rows)

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`."""
        if batch.num_rows == 0:
            return ()
        with self._errors():
            if self._connection is None:
                connection = self._start(batch.schema)
                # A deferred constraint would refuse rows too late to tell them apart.
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE; SAVEPOINT seamark")
            refused = sift(
                batch.num_rows,
                lambda start, end: self._take(batch.slice(start, end - start)),
                names_row=_COPY_LINE,
            )
        if len(refused) < batch.num_rows:
            self._taken(batch.num_rows - len(refused))
        return refused

    def _take(self, batch: pa.RecordBatch) -> str:
        """Copy these rows, all or none; return "" or the server's reason to refuse them."""
        try:
            sent = copy_format.rows(batch, [column.type for column in self._columns])
        except (ValueError, pa.ArrowInvalid) as error:
            return self._server.said(error)
        with self._within():
            try:
                with self._connection.cursor().copy(self._copy_statement) as copy:
                    for part in (copy_format.HEADER, sent, copy_format.TRAILER):
                        copy.write(part)
            except driver().Error as error:
                if not blames_a_row(error):
                    raise
                self._connection.execute("ROLLBACK TO seamark")
                return self._server.said(error)
            self._connection.execute("RELEASE seamark; SAVEPOINT seamark")
        return ""

    def _taken(self, rows: int) -> None:
        if self._rows == 0:
            failpoints.reached("transaction-begun")
        self._rows += rows

    def prepare_commit(self) -> Sequence[PostgresCommittable]:
        """End the COPY and make the rows durable."""
        if self._rows == 0:
            self._close()
            return []
        with self._errors(), self._within():
            if self._copying is not None:
                self._copy.write(copy_format.TRAILER)
                self._copying.__exit__(None, None, None)
            committable = self._flush()
        self._close()
        return [committable]

    def abort(self) -> None:
        """Cut the connection: the server rolls back everything not flushed."""
        with ignored("the end of a connection to PostgreSQL"):
            self._close()

    def _lock(self, connection: Any) -> None:
        """Take the locks needed before the table is described."""

    def _described(self, table: Table, rows: pa.Schema) -> list[Column]:
        """Return what this attempt's COPY writes for these columns of the batch."""
        return targets(table, written_columns(rows, None))

    def _begin(self, connection: Any, table: Table) -> str:
        """Return the quoted table for this attempt's COPY; the transaction has begun."""
        raise NotImplementedError

    def _flush(self) -> PostgresCommittable:
        """Make the transaction durable, and return its committable."""
        raise NotImplementedError

    @property
    def _name(self) -> str:
        return f"PostgreSQL table {self._table} in {self._server.place}"

    def _start(self, rows: pa.Schema) -> Any:
        self._connection = self._server.connect()
        with self._within():
            self._connection.execute(BEGIN)
            self._lock(self._connection)
            table = describe(self._connection, self._table)
            if table is None:
                raise WriteRefusedError(
                    f"{self._name} does not exist any more; make it again, and start the job again"
                )
            if why := volatile_parts(self._connection, table):
                raise WriteRefusedError(
                    f"{self._name} was altered while the job ran: {why}; alter it back, and start "
                    "the job again"
                )
            self._columns = self._described(table, rows)
            into = self._begin(self._connection, table)
            listed = ", ".join(quoted(column.name) for column in self._columns)
            self._copy_statement = f"COPY {into} ({listed}) FROM STDIN (FORMAT binary)"
        return self._connection

    def _within(self) -> contextlib.AbstractContextManager[None]:
        """The limit for a batch, or for its last part: triggers and indexes run then."""
        return within(self._connection, 6 * self._server.timeout_s)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the driver's errors into ours, with a remedy where there is one."""
        try:
            yield
        except driver().Error as error:
            said = self._server.said(error)
            if not may_pass(error):
                raise WriteRefusedError(f"{self._name} refuses the rows: {said}") from error
            if remedy := _REMEDIES.get(getattr(error, "sqlstate", None) or ""):
                said += f". {remedy}"
            raise PreCommitError(f"{self._name}: {said}") from error

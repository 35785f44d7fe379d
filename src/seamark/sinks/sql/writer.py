"""The task's side: puts Arrow batches into the stage, under the attempt's handle.

Each batch is a transaction of its own. Rows of a handle count only once a committable names it, so
what an attempt leaves half-way is lingering; and no attempt holds locks while it waits for rows.
That lets tasks share a database with a single writer at a time, SQLite among them.
"""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.dead_letters import Refusals, RefusedRow
from seamark.contracts.sink import WriterContext
from seamark.model import failpoints
from seamark.model.errors import PreCommitError, WriteRefusedError
from seamark.model.ignored import ignored
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import written_columns
from seamark.sinks.internal.sifting import sift
from seamark.sinks.sql import tables
from seamark.sinks.sql.committable import HANDLE, ROW, SqlCommittable, owner_of
from seamark.sinks.sql.database import Session, failures, is_lasting, refuses_row
from seamark.sinks.sql.tables import TargetColumn
from seamark.sinks.sql.types import holds, values

if TYPE_CHECKING:
    from seamark.sinks.sql.sink import SqlSink


class SqlWriter:
    """One attempt. Connects at the first row."""

    def __init__(self, sink: "SqlSink", context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._database = sink.database
        self._session = Session(self._database)
        self._handle = str(AttemptName.of(context, owner_of(context)))
        self._keys: tuple[str, ...] = ()
        self._columns: list[TargetColumn | None] = []
        self._types: tuple[str, ...] = ()
        self._stage: Any = None
        self._statement: Any = None
        self._rows = 0
        self._numbered = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """See `CommittingWriter`."""
        if batch.num_rows == 0:
            return
        with self._errors():
            self._begin(batch.schema)
            rows, refused = self._values(batch)
            changes.require_fit(refused, self._sink.describe())
            self._session.run(partial(self._insert, rows), limit_s=self._limit_s)
        self._rows += batch.num_rows

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`. Stages a refused part of the batch again by halves."""
        if batch.num_rows == 0:
            return ()
        with self._errors():
            self._begin(batch.schema)
            rows, refused = self._values(batch)
            bad = {row.index for row in refused}
            good = [index for index in range(batch.num_rows) if index not in bad]
            taken = [rows[index] for index in good]
            refusals = sift(len(taken), lambda start, end: self._take(taken[start:end]))
            refused += [RefusedRow(good[row.index], row.reason) for row in refusals]
        self._rows += batch.num_rows - len(refused)
        return sorted(refused, key=lambda row: row.index)

    def prepare_commit(self) -> Sequence[SqlCommittable]:
        """See `CommittingWriter`. Each batch is durable already."""
        if self._rows == 0:
            self._session.close()
            return []
        named = {c.name for c in self._stage.columns}
        own = (HANDLE, ROW, changes.STAGED_OP)
        made = SqlCommittable.of(
            self._context,
            self._handle,
            self._rows,
            place=self._stage.schema or "",
            stage=self._stage.name,
            target=self._sink.table_name[1],
            columns=tuple(c.name for c in self._stage.columns if c.name not in own),
            types=self._types,
            keys=self._keys,
            op=changes.STAGED_OP if changes.STAGED_OP in named else "",
        )
        if self._session.renewed:  # perhaps to a server that lacks the first batches
            with self._errors():
                staged = self._session.run(lambda connection: tables.staged_rows(connection, made))
            if staged != self._rows:
                raise PreCommitError(
                    f"{self._sink.describe()}: its stage has {staged} of the {self._rows} rows it "
                    "has taken: the database was set back, or somebody changed the stage"
                )
        self._session.close()
        failpoints.reached("stage-written")
        return [made]

    def abort(self) -> None:
        """See `CommittingWriter`. Leftovers are lingering."""
        with ignored("the abort of a writer"):
            if self._stage is not None:
                handle = self._stage.c[HANDLE] == self._handle
                self._session.run(
                    lambda connection: connection.execute(sa.delete(self._stage).where(handle)),
                    limit_s=2.0,
                )
        self._session.close()

    @property
    def _limit_s(self) -> float:
        return 6 * self._database.timeout_s  # a block of rows

    def _begin(self, rows: pa.Schema) -> None:
        """Find the target's columns for those of the batch, and the stage; make it if it is not
        there."""
        if self._stage is not None:
            return
        sink, what = self._sink, self._sink.describe()
        target = self._session.run(
            lambda c: tables.describe(c, self._database.dialect, *sink.table_name)
        )
        if target is None:
            raise WriteRefusedError(f"{what} does not exist; make it, and start the job again")
        if target.engine not in ("", "InnoDB"):
            raise WriteRefusedError(
                f"{what} has the engine {target.engine} now, which has no transactions; ALTER "
                f"TABLE {sink.table} ENGINE=InnoDB, and start the job again"
            )
        for given in written_columns(rows, sink.op):
            column = target.find(given.name)
            if column is None:
                raise WriteRefusedError(
                    f"{what} has no column {given.name!r}; add it, and start the job again"
                )
            if not holds(column.form, given.type):
                raise WriteRefusedError(
                    f"{what} was altered while the job ran: column {column.name!r} would alter "
                    f"values of type {given.type}; alter it back, or CAST the rows, and start the "
                    "job again"
                )
            self._columns.append(column)
        self._types = tuple(column.type for column in written_columns(rows, sink.op))
        if sink.op is not None:
            self._columns.insert(rows.get_field_index(sink.op), None)
        written = [column for column in self._columns if column is not None]
        key_columns = [target.find(key) for key in sink.keys]
        self._keys = tuple(column.name for column in key_columns if column is not None)
        stage = tables.stage_table(target, written, with_op=sink.op is not None)
        if not self._session.run(lambda c: tables.exists(c, target.place, stage.name)):
            tables.create(self._session, stage)
        into = [changes.STAGED_OP if c is None else c.name for c in self._columns]
        binds = {name: sa.bindparam(f"p{number}") for number, name in enumerate(into)}
        own = {HANDLE: self._handle, ROW: sa.bindparam("n")}
        self._statement = sa.insert(stage).values({**own, **binds})
        self._stage = stage

    def _values(self, batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], list[RefusedRow]]:
        """Return the statement's parameters for each row, and the rows refused before they are
        sent."""
        sink = self._sink
        required = [
            name
            for name, column in zip(batch.schema.names, self._columns, strict=True)
            if column is not None and column.not_null and name not in sink.keys
        ]
        refused = Refusals(changes.unfit(batch, sink.keys, sink.op, required))
        listed: list[list[Any]] = []
        for name, array, column in zip(batch.schema.names, batch, self._columns, strict=True):
            if column is None:
                listed.append(_texts(array) if refused.rows() else array.to_pylist())
                continue
            form, dialect = column.form, self._database.dialect
            listed.append(values(array, name, form, dialect, refused, key=name in sink.keys))
        names = [f"p{number}" for number in range(len(listed))]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True)]
        for number, row in enumerate(rows, self._numbered):
            row["n"] = number
        self._numbered += len(rows)
        return rows, refused.rows()

    def _insert(self, rows: list[dict[str, Any]], connection: Any) -> None:
        connection.execute(self._statement, rows)

    def _take(self, rows: list[dict[str, Any]]) -> str:
        """Stage these rows, all or none; return "" or the database's reason to refuse them."""
        try:
            self._session.run(partial(self._insert, rows), limit_s=self._limit_s)
        except failures() as error:
            if not refuses_row(error):
                raise
            return self._database.said(error)
        return ""

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except failures() as error:
            said = f"{self._sink.describe()}: {self._database.said(error)}"
            if is_lasting(error):
                raise WriteRefusedError(f"{said}. The rows are refused") from error
            raise PreCommitError(said) from error


def _texts(ops: pa.Array) -> list[str]:
    """Return ops of which some are no texts: their rows are refused."""
    return [(op or b"").decode(errors="replace") for op in ops.cast(pa.binary()).to_pylist()]

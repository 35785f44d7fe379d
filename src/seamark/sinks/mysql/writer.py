"""The task's side: writes Arrow batches into a prepared XA transaction, or into a stage table.

Failpoints: `xa-prepared` and `stage-written`: durable, the connection closed, and nobody knows yet.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seamark.contracts.dead_letters import RefusedRow
from seamark.contracts.sink import WriterContext
from seamark.model import failpoints
from seamark.model.errors import PreCommitError, WriteRefusedError
from seamark.model.ignored import ignored
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import written_columns
from seamark.sinks.internal.sifting import sift
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql import ledger, stage
from seamark.sinks.mysql.committable import MySQLCommittable, new_name
from seamark.sinks.mysql.loading import Loader
from seamark.sinks.mysql.table import NARROW, misfit, read_columns, read_engine

if TYPE_CHECKING:
    from seamark.sinks.mysql.sink import MySQLSink

_AT_ROW = re.compile(r"\bat row (\d+)")
LOCK_TIMEOUT_S = 20
_ABORT_TIMEOUT_S = 2.0
_UNKNOWN_XID = 1397
_PREPARED_IDLE_S = 30
"""If a machine dies between PREPARE and close, no other connection can end the transaction before
the server closes the dead one. This bounds the wait."""


class MySQLWriter:
    """One attempt. Connects at the first row. Without rows it begins no transaction: the server
    rolls an empty one back at its commit."""

    def __init__(self, sink: "MySQLSink", context: WriterContext) -> None:
        self._sink = sink
        self._address = sink.address
        self._table = sink.table
        self._staged = sink.mode != "xa"
        self._not_null: tuple[str, ...] = ()
        self._name = new_name(context)
        self._connection: Any = None
        self._loader: Loader | None = None
        self._columns: tuple[str, ...] = ()
        self._types: tuple[str, ...] = ()
        self._rows = 0
        self._left = False
        self._failed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """See `CommittingWriter`. Raises WriteRefusedError also for rows that strict mode would let
        through with a warning."""
        if batch.num_rows == 0:
            return
        with self._whole():
            loader = self._loader_for(batch)
            changes.require_fit(self._unfit(batch), f"MySQL table {self._table}")
            loader.load(batch)
        self._rows += batch.num_rows

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`. Loads a refused part of the batch again by halves, from a
        savepoint."""
        if batch.num_rows == 0:
            return ()
        with self._whole():
            loader = self._loader_for(batch)
            refused = changes.take_others(
                batch,
                self._unfit(batch),
                lambda rows: sift(
                    rows.num_rows,
                    lambda start, end: self._take(loader, rows.slice(start, end - start)),
                    names_row=_AT_ROW,
                ),
            )
        self._rows += batch.num_rows - len(refused)
        return refused

    def _unfit(self, batch: pa.RecordBatch) -> list[RefusedRow]:
        return changes.unfit(
            batch, self._sink.keys, self._sink.op, self._not_null, nan_is_null=True
        )

    def _take(self, loader: Loader, batch: pa.RecordBatch) -> str:
        self._execute("SAVEPOINT seamark")
        try:
            why = loader.refusal(batch)
        except WriteRefusedError as error:  # a value without a text form
            why = str(error)
        if why:
            self._execute("ROLLBACK TO SAVEPOINT seamark")
        return why

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Refuse to go on after a failure: PREPARE after a failed statement succeeds, without the
        statement's rows."""
        failed, self._failed = self._failed, True
        if failed:
            raise PreCommitError(f"MySQL transaction {self._name}: a statement of it has failed")
        yield
        self._failed = False

    def _loader_for(self, batch: pa.RecordBatch) -> Loader:
        if self._loader is None:
            self._loader = self._begin(batch.schema)
        return self._loader

    def prepare_commit(self) -> Sequence[MySQLCommittable]:
        """See `CommittingWriter`. Returns with the connection closed: until then no other
        connection could end the transaction."""
        if self._failed:
            raise PreCommitError(f"MySQL transaction {self._name}: a statement of it has failed")
        if self._rows == 0:
            self.abort()  # drops the stage, if all rows were refused
            return []
        database = self._address.database
        if self._staged:
            self._execute("COMMIT")
        else:
            ledger.record(self._connection, database, self._name, self._rows, "committed")
            self._execute(f"SET SESSION wait_timeout={_PREPARED_IDLE_S}")
            self._execute(f"XA END {self._name.xid}")
            self._left = True  # its answer may be lost
            self._execute(f"XA PREPARE {self._name.xid}")
        connection, self._connection = self._connection, None
        server.close(connection)
        failpoints.reached("stage-written" if self._staged else "xa-prepared")
        name, kind = str(self._name), "stage" if self._staged else "xa"
        if not self._staged:
            return [MySQLCommittable(name, kind, database, rows=self._rows)]
        moved = (self._table, self._columns, tuple(self._sink.keys), self._rows, self._types)
        return [MySQLCommittable(name, kind, database, *moved)]

    def abort(self) -> None:
        """See `CommittingWriter`. An XA transaction not yet prepared ends with its connection. For
        the rest it asks the server, briefly: a retry of the task may need the row locks."""
        prepared = self._loader is not None and self._connection is None
        connection, self._connection = self._connection, None
        server.close(connection)
        if not (prepared or self._left):
            return
        with ignored("the abort of a writer"):
            connection = server.connect(self._address, timeout_s=_ABORT_TIMEOUT_S, lock_timeout_s=1)
            with contextlib.closing(connection):
                if self._staged:
                    stage.drop(connection, self._address.database, self._name)
                else:
                    self._roll_back(connection)

    def _roll_back(self, connection: Any) -> None:
        deadline = time.monotonic() + _ABORT_TIMEOUT_S
        while True:
            try:
                server.execute(connection, f"XA ROLLBACK {self._name.xid}")
                return
            except server.driver().MySQLError as error:
                # Until the server has noticed that the connection of PREPARE is closed.
                if error.args[:1] != (_UNKNOWN_XID,) or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _begin(self, schema: pa.Schema) -> Loader:
        self._connection = server.connect(
            self._address,
            timeout_s=6 * self._address.timeout_s,
            lock_timeout_s=LOCK_TIMEOUT_S,
            local_infile=True,
        )
        server.read_committed(self._connection)
        database, op = self._address.database, self._sink.op
        table = server.quoted(database, self._table)
        if not self._staged:
            self._execute(f"XA START {self._name.xid}")
            # What a transaction has read nobody alters before its end. A table that is gone is told
            # below.
            with contextlib.suppress(server.driver().ProgrammingError):
                self._execute(f"SELECT 1 FROM {table} LIMIT 0")
        written = written_columns(schema, op)
        columns = tuple(column.name for column in written)
        present = {c.name.lower(): c for c in read_columns(self._connection, database, self._table)}
        if missing := [name for name in columns if name.lower() not in present]:
            found = f"no column {missing[0]!r}" if present else "vanished"
            raise WriteRefusedError(
                f"MySQL table {table}: {found}; add it with ALTER TABLE, or start the job again"
            )
        for column in written:
            target = present[column.name.lower()]
            if why := misfit(column, target):
                raise WriteRefusedError(
                    f"MySQL table {table} was altered while the job ran: column {column.name!r} is "
                    f"{target.data_type} now, and a {column.type} there {why}; alter it back, or "
                    "convert the rows, and start the job again"
                )
        engine = read_engine(self._connection, database, self._table)
        if engine.lower() != "innodb":
            raise WriteRefusedError(
                f"MySQL table {table} was altered while the job ran: its engine is {engine} now, "
                "which has no transactions; ALTER TABLE … ENGINE=InnoDB, and start the job again"
            )
        into = table
        if self._staged:
            into = stage.sql_name(database, self._name)
            self._left = True
            stage.create(
                self._connection, database, self._name, self._table, columns, op is not None
            )
        loader = Loader(
            self._connection,
            into,
            [changes.STAGED_OP if name == op else name for name in schema.names],
            [name for name in columns if not present[name.lower()].takes_bytes],
            {n: present[n.lower()] for n in columns if present[n.lower()].data_type in NARROW},
        )
        if self._staged:
            self._execute("START TRANSACTION")
        self._columns, self._types = columns, tuple(column.type for column in written)
        self._not_null = tuple(
            name
            for name in columns
            if present[name.lower()].not_null and name not in self._sink.keys
        )
        return loader

    def _execute(self, sql: str) -> None:
        server.execute(self._connection, sql)

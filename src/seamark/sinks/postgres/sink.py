"""`PostgresSink`: the user's configuration, checked when it is built."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.contracts.sink import WriterContext
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column, quoted
from seamark.sinks.internal.columns import in_double_quotes, text_expression
from seamark.sinks.internal.servers import shown
from seamark.sinks.internal.table_sink import TableSink, name_parts, plain_name
from seamark.sinks.postgres import preflight, read_back, types
from seamark.sinks.postgres.committable import PostgresCommittable
from seamark.sinks.postgres.committer import PostgresCommitter
from seamark.sinks.postgres.connection import Server
from seamark.sinks.postgres.ledger import NAME as LEDGER
from seamark.sinks.postgres.prepared import PreparedWriter
from seamark.sinks.postgres.stage import STAGE_PREFIX, StageWriter
from seamark.sinks.postgres.writer import CopyWriter

MODES = ("prepared", "staged", "upsert")
_LONGEST_NAME = 63
"""Bytes."""


@dataclass(frozen=True, repr=False)
class PostgresSink(TableSink[PostgresCommittable]):
    """Write rows into a PostgreSQL table, exactly once, by two-phase commit.

    url: ``postgresql://user:password@host:5432/database``, with any of libpq's options, e.g.
        ``?sslmode=verify-full``. Driver and executors connect; its secrets are never shown.
    table: ``name`` or ``schema.name``, each taken as written, or between quotation marks as in SQL.
    mode:
        ``"staged"``: rows go into a stage table, and one transaction moves them: the commit takes
            as long as inserting them. Needs CREATE on the table's schema.
        ``"prepared"``: quicker: rows go straight into the table, in a prepared transaction (PREPARE
            TRANSACTION); the commit takes a millisecond. The server's
            ``max_prepared_transactions`` (0 unless set) must be above twice the number of tasks.
            Rows keep their locks until their commit: another transaction with the same unique key
            waits.
        ``"upsert"``: as ``"staged"``, but a row replaces the row of the same key. If an epoch has
            several rows for one key, the task's last row wins; so give each key to one task (as a
            ``groupBy`` of it does).
    keys: the columns of a row's key; for ``mode="upsert"`` alone. A unique index must be on exactly
        these columns.
    op: for ``mode="upsert"``: a string column that is not written, but says what its row does:
        ``insert`` and ``update`` replace the row of the key, ``delete`` deletes it.
    create_table: whether to create a missing table, with the DataFrame's columns.
    timeout: how long the server may take for an answer; for a block of rows it may take six times
        as long.
    spool: also keeps the rows in the checkpoint until their commit is confirmed. A transaction
        rolled back by somebody else is then written again instead of being lost.

    Put no unique constraint on the table, except on the keys, that rows of different tasks or
    epochs could break: staged rows meet it after the decision, and stop the job.

    Types: as their names say; decimal numeric; timestamp ``timestamptz``, timestamp_ntz
    ``timestamp``; string also json, jsonb, uuid or an enum; array of scalars an array; struct, map
    and other arrays jsonb. A string must not hold a NUL character.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[postgres]'``.
    """

    mode: Literal["staged", "prepared", "upsert"] = "staged"

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise ConfigurationError(f"PostgresSink: url is a {type(self.url).__name__}, not text")
        _ = self.server
        self._check_table(LEDGER, STAGE_PREFIX)
        if long := [p for p in name_parts(self.table) if len(p.encode()) > _LONGEST_NAME]:
            raise ConfigurationError(
                f"PostgresSink: table is {self.table!r}, and PostgreSQL cuts {long[0]!r} off after "
                f"{_LONGEST_NAME} bytes, where another table's name may end; give the name that it "
                "has then"
            )
        self._check_settings(MODES)

    def __repr__(self) -> str:
        return shown(self, url=self.server.shown)

    @property
    def server(self) -> Server:
        """The server to connect to."""
        return Server(self.url, self._timeout_s)

    @property
    def sql_name(self) -> str:
        """The table's name as SQL."""
        return in_double_quotes(*name_parts(self.table))

    def describe(self) -> str:
        """Return table, database and mode."""
        return f"PostgreSQL table {self.table} in {self.server.place} ({self.mode})"

    @staticmethod
    def _cannot_name(name: str) -> bool:
        """Whether PostgreSQL cuts off the name of a column, or has such a column in every table."""
        system = ("ctid", "xmin", "cmin", "xmax", "cmax", "tableoid")
        return name in system or not 1 <= len(name.encode()) <= _LONGEST_NAME

    def _expression(self, column: Column) -> str:
        """See `ByKey`: arrays of scalars unchanged too."""
        is_json = types.kind(column.type) == "json"
        return text_expression(column, ()) if is_json else quoted(column.name)

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        # A name without a schema is, as a rule, one in this.
        table = plain_name(name_parts(self.table)).removeprefix("public.")
        return [f"postgresql: table {table} in {self.server.place}"]

    def create_writer(self, context: WriterContext) -> CopyWriter:
        """Return a writer; it connects at its first row."""
        if self.mode == "prepared":
            return PreparedWriter(self.server, self.sql_name, context)
        return StageWriter(self.server, self.sql_name, context, self.keys, self.op)

    create_selective_writer = create_writer
    look = preflight.look
    committer = PostgresCommitter
    read_back = read_back.read
    committable = PostgresCommittable

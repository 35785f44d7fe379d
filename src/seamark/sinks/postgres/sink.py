"""`PostgresSink`: the user's configuration, checked when it is built."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from seamark.contracts.committables import load_committable
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding
from seamark.model.schema import Schema, quoted
from seamark.sinks.internal.columns import check_columns, in_double_quotes, to_json
from seamark.sinks.internal.servers import listed, shown
from seamark.sinks.internal.sql_sink import SqlSink
from seamark.sinks.postgres import connection, preflight, read_back, types
from seamark.sinks.postgres.committable import PostgresCommittable
from seamark.sinks.postgres.committer import PostgresCommitter
from seamark.sinks.postgres.connection import Server
from seamark.sinks.postgres.ledger import NAME as LEDGER
from seamark.sinks.postgres.prepared import PreparedWriter
from seamark.sinks.postgres.stage import STAGE_PREFIX, StageWriter
from seamark.sinks.postgres.writer import CopyWriter

MODES = ("prepared", "staged", "upsert")


def _cannot_name(name: str) -> bool:
    """Whether PostgreSQL cuts off the name of a column, or has such a column in every table."""
    system = ("ctid", "xmin", "cmin", "xmax", "cmax", "tableoid")
    return name in system or not 1 <= len(name.encode()) <= 63


@dataclass(frozen=True, repr=False)
class PostgresSink(SqlSink[PostgresCommittable]):
    """Write rows into a PostgreSQL table, exactly once, by two-phase commit.

    url: ``postgresql://user:password@host:5432/database``, with any of libpq's options, e.g.
        ``?sslmode=verify-full``. Driver and executors connect; its secrets are never shown.
    table: ``name`` or ``schema.name``, each taken as written, or between quotation marks as in SQL.
    mode:
        ``"prepared"``: rows go straight into the table, in a prepared transaction (PREPARE
            TRANSACTION); the commit takes a millisecond. The server's
            ``max_prepared_transactions`` must be above twice the number of tasks. Rows keep their
            locks until their commit: another transaction with the same unique key waits.
        ``"staged"``: rows go into a stage table, and one transaction moves them: the commit takes
            as long as inserting them. Needs CREATE on the table's schema.
        ``"upsert"``: as ``"staged"``, but a row replaces the row of the same key. Of several rows
            of one key in an epoch the last one of its task counts, so give each key to one task (as
            a ``groupBy`` of it does).
    keys: the columns of a row's key; for ``mode="upsert"`` alone. A unique index must be on exactly
        these columns.
    op: for ``mode="upsert"``: a string column that is not written, but says what its row does:
        ``insert`` and ``update`` replace the row of the key, ``delete`` deletes it.
    create_table: creates a missing table, with the DataFrame's columns.
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

    mode: Literal["prepared", "staged", "upsert"] = "prepared"

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise ConfigurationError(f"PostgresSink: url is a {type(self.url).__name__}, not text")
        _ = self.server
        parts = connection.name_parts(self.table) if isinstance(self.table, str) else []
        if not parts:
            raise ConfigurationError(
                f"PostgresSink: table is {self.table!r}; give 'name' or 'schema.name'"
            )
        if parts[-1].startswith((LEDGER, STAGE_PREFIX)):
            raise ConfigurationError(
                f"PostgresSink: table is {self.table!r}, a name of Seamark's own: choose another"
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
        return in_double_quotes(*connection.name_parts(self.table))

    def describe(self) -> str:
        """Return table, database and mode."""
        return f"PostgreSQL table {self.table} in {self.server.place} ({self.mode})"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return one expression per column: scalars and their arrays unchanged, the rest as JSON.

        Raises ConfigurationError for types that no column can hold, and for missing keys.
        """
        check_columns(schema, self.describe(), _cannot_name, as_json=True)
        self._check_key_columns(schema)
        return [
            f"{to_json(quoted(column.name))} AS {quoted(column.name)}"
            if types.kind(column.type) == "json"
            else quoted(column.name)
            for column in schema
        ]

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        # A name without a schema is, as a rule, one in this.
        table = connection.plain_name(connection.name_parts(self.table)).removeprefix("public.")
        return [f"postgresql: table {table} in {self.server.place}"]

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """See `InspectedSink`."""
        name = f"sink {context.sink_uid!r}: {self.describe()}"
        return listed(preflight.look(self, context, name))

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        """See `ReadableSink`: a row's `xmin` tells the transaction that inserted it."""
        yield from read_back.read(self, asked)

    def create_writer(self, context: WriterContext) -> CopyWriter:
        """Return a writer; it connects at its first row."""
        if self.mode == "prepared":
            return PreparedWriter(self.server, self.sql_name, context)
        return StageWriter(self.server, self.sql_name, context, self.keys, self.op)

    create_selective_writer = create_writer

    def create_committer(self, context: SinkContext) -> PostgresCommitter:
        """Return the committer; it connects when first needed."""
        return PostgresCommitter(self, context)

    load = staticmethod(partial(load_committable, PostgresCommittable))

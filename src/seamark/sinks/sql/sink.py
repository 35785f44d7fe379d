"""`SqlSink`: the user's configuration, checked when it is built."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.contracts.sink import WriterContext
from seamark.model.errors import ConfigurationError
from seamark.sinks.internal.servers import shown
from seamark.sinks.internal.table_sink import TableSink, name_parts
from seamark.sinks.sql import preflight, read_back
from seamark.sinks.sql.committable import SqlCommittable
from seamark.sinks.sql.committer import SqlCommitter
from seamark.sinks.sql.database import Database, database_at
from seamark.sinks.sql.duckdb import ParquetWriter
from seamark.sinks.sql.tables import LEDGER, STAGE_PREFIX
from seamark.sinks.sql.writer import SqlWriter

MODES = ("staged", "upsert")


@dataclass(frozen=True, repr=False)
class SqlSink(TableSink[SqlCommittable]):
    """Write rows into a table of any database that SQLAlchemy has a dialect for, exactly once, if
    its INSERT and DELETE take part in transactions. For PostgreSQL, MySQL, MariaDB and SQLite there
    are quicker sinks of their own.

    url: SQLAlchemy's, ``dialect+driver://user:password@host:port/database``. Driver and executors
        connect, so both need the dialect's package; its secrets are never shown. A database in a
        file needs an absolute path, ``sqlite:////var/lib/orders.db``, that they share.
    table: ``name`` or ``schema.name``, each taken as written, or between quotation marks as in SQL.
    mode:
        ``"staged"``: rows go into a stage table, and one transaction moves them into the target.
        ``"upsert"``: as ``"staged"``, but a row replaces the row of the same key: the commit
            deletes the old row and inserts the new one, so columns that are not in the DataFrame
            get their default. If an epoch has several rows for one key, the task's last row wins;
            so give each key to one task (as a ``groupBy`` of it does).
    keys: the columns of a row's key; for ``mode="upsert"`` alone. A primary key or unique index
        must be on exactly these columns.
    op: for ``mode="upsert"``: a string column that is not written, but says what its row does:
        ``insert`` and ``update`` replace the row of the key, ``delete`` deletes it.
    create_table: whether to create a missing table, with the DataFrame's columns.
    timeout: how long the database may take for an answer; for a block of rows it may take six times
        as long.
    spool: also keeps the rows in the checkpoint until their commit is confirmed. Rows that somebody
        has deleted from the stage are then written again instead of being lost.

    A value that its column cannot hold is refused with its row, before the decision, and so is null
    in a NOT NULL column. Constraints (CHECK, unique, foreign keys) meet staged rows after the
    decision, and stop the job: keep those off the table that rows could break.

    Types: as their names say; float double precision; decimal NUMERIC (text in SQLite); timestamp
    with a time zone where the database has it, else in UTC; arrays, maps and structs JSON text. NaN
    and infinite numbers, dates outside of the years 1 to 9999, and times finer than the column are
    refused where the database has none; -0.0 may become 0.0.

    The database gets a table `_seamark_sql_ledger`, the proof of how each transaction ended, and a
    table `_seamark_stage_…` beside each target.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[sql]'``, and the package of the
    dialect.
    """

    mode: Literal["staged", "upsert"] = "staged"

    def __post_init__(self) -> None:
        self._check_table(LEDGER, STAGE_PREFIX)
        _ = self.database
        self._check_settings(MODES)

    def __repr__(self) -> str:
        return shown(self, url=self.database.shown)

    @property
    def database(self) -> Database:
        """The database to connect to."""
        if not isinstance(self.url, str):
            raise ConfigurationError(f"SqlSink: url is a {type(self.url).__name__}, not text")
        return database_at(self.url, self._timeout_s, self._name)

    @property
    def table_name(self) -> tuple[str, str]:
        """The table's schema, "" for the connection's own, and its name."""
        *schema, name = name_parts(self.table)
        return "".join(schema), name

    def describe(self) -> str:
        """Return table, database and mode."""
        database = self.database
        how = f"upsert by {', '.join(self.keys)}" if self.keys else self.mode
        return f"{database.dialect} table {self.table} in {database.place} ({how})"

    @staticmethod
    def _cannot_name(name: str) -> bool:
        return not name

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        database = self.database
        return [f"{database.dialect}: table {self.table} in {database.place}"]

    def create_writer(self, context: WriterContext) -> SqlWriter | ParquetWriter:
        """Return a writer; it connects at its first row."""
        in_files = self.database.dialect == "duckdb"
        return ParquetWriter(self, context) if in_files else SqlWriter(self, context)

    create_selective_writer = create_writer
    look = preflight.look
    committer = SqlCommitter
    read_back = read_back.read
    committable = SqlCommittable

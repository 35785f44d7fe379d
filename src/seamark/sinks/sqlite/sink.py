"""`SQLiteSink`: the user's configuration, and the columns of the table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from seamark.contracts.committables import load_committable
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.file_systems.local import local_path
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding
from seamark.model.schema import Schema
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import check_columns, text_expression
from seamark.sinks.internal.servers import listed
from seamark.sinks.internal.staged_files import StagedFile
from seamark.sinks.sqlite import preflight, read_back
from seamark.sinks.sqlite.committer import SQLiteCommitter
from seamark.sinks.sqlite.database import Target
from seamark.sinks.sqlite.writer import SelectiveSQLiteWriter, SQLiteWriter


@dataclass(frozen=True)
class SQLiteSink(changes.ByKey[StagedFile]):
    """Write rows to a table of a SQLite database, exactly once.

    path: the database file, on a local file system shared by the driver and all executors. Created
        if missing, in an existing directory. Rows are staged in ``<path>.seamark/`` until their
        epoch is decided.
    table: created if missing, with the DataFrame's columns. An existing table must have all of
        them, of types that keep their values (string and decimal: TEXT or BLOB; bigint: not REAL),
        checked when the job starts; its other columns get their default or NULL. Rows are
        inserted after the epoch is decided, and a row refused by a constraint stops the job. Keep
        such constraints off the table, or give `Job.sink` ``on_bad_row="dead_letter"``.
    keys: the columns of a row's key: a row replaces the row of the same key. A primary key or
        unique index must be on exactly these columns; a table made by the sink has it. Of several
        rows of one key in an epoch the last one of its task counts, so give each key to one task
        (as a ``groupBy`` of it does). Without keys rows are appended.
    op: beside keys: a string column that is not written, but says what its row does: ``insert`` and
        ``update`` replace the row of the key, ``delete`` deletes it.

    Spark types become: boolean 0/1; integers INTEGER; float and double REAL (NaN becomes NULL, as
    SQLite has none); string TEXT; binary BLOB; decimal TEXT in plain digits; date TEXT
    ``YYYY-MM-DD``; timestamp TEXT ``YYYY-MM-DD HH:MM:SS.ffffffZ``, always in UTC; timestamp_ntz the
    same without the ``Z``; arrays, maps and structs, a window among them, JSON text as Spark's
    ``to_json`` writes it, timestamps in UTC (select ``window.start`` and ``window.end`` for columns
    of their own).

    The sink puts the database into WAL mode. A program that commits through this sink must not open
    the same database in the same process by Python's ``sqlite3``: two copies of SQLite in one
    process break each other's file locks. Other processes may read at any time.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[sqlite]'``.
    """

    path: str
    table: str
    keys: Sequence[str] = ()
    op: str | None = None

    def __post_init__(self) -> None:
        if str(self.path).startswith((":memory:", "file::memory:")) or not self.path:
            raise ConfigurationError(
                f"SQLiteSink: path is {self.path!r}; give a file: rows must outlive the process"
            )
        path = local_path(self.path, "SQLiteSink: path")
        object.__setattr__(self, "path", path)
        table = self.table
        if not isinstance(table, str) or not table or "\0" in table:
            raise ConfigurationError(
                f"SQLiteSink {path}: table is {table!r}; give the name of a table"
            )
        if table.lower().startswith(("sqlite_", "_seamark")):
            raise ConfigurationError(
                f"SQLiteSink {path}: table is {table!r}; names that begin with 'sqlite_' belong "
                "to SQLite and '_seamark' to Seamark: choose another"
            )
        self._check_keys(f"SQLiteSink {path}, table {table!r}", "give keys=")

    @property
    def staging_root(self) -> Path:
        """The directory of undecided rows: beside the database, like SQLite's own journal."""
        return Path(self.path + ".seamark")

    @property
    def _target(self) -> Target:
        return Target(self.path, self.table, tuple(self.keys), self.op)

    def describe(self) -> str:
        """Return the table and the file."""
        how = f" (upsert by {', '.join(self.keys)})" if self.keys else ""
        return f"SQLite table {self.table} in {self.path}{how}"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return one column per column: scalars as they are, decimals as digits, the rest as JSON.

        Raises ConfigurationError for intervals, variants and the like, and for duplicate names.
        """
        check_columns(schema, self.describe(), as_json=True)
        self._check_key_columns(schema)
        # Spark writes a decimal in plain digits where Arrow would write 1E-7.
        return [text_expression(column, ("decimal",)) for column in schema]

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        return [f"sqlite: table {self.table.lower()} in {self.path}"]  # SQLite knows no case

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        """See `ReadableSink`: a table does not tell who has inserted a row."""
        yield from read_back.read(self._target, asked)

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """See `InspectedSink`."""
        name = f"sink `{context.sink_uid}`: {self.describe()}"
        return listed(preflight.findings(self._target, context, name))

    def create_writer(self, context: WriterContext) -> SQLiteWriter:
        """Return a writer that stages one Arrow file. It touches nothing before the first row."""
        return SQLiteWriter(self._target, self.staging_root, context)

    def create_selective_writer(self, context: WriterContext) -> SelectiveSQLiteWriter:
        """Return a writer that also finds the rows refused by the table."""
        return SelectiveSQLiteWriter(self._target, self.staging_root, context)

    def create_committer(self, context: SinkContext) -> SQLiteCommitter:
        """Return the committer. It opens the database anew in each call."""
        return SQLiteCommitter(self._target, self.staging_root, context)

    load = staticmethod(partial(load_committable, StagedFile))

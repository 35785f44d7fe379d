"""`SQLiteSink`: the user's configuration, and the columns of the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seamark.api.checks import yes_or_no
from seamark.contracts.sink import WriterContext
from seamark.files.local import local_path
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Column
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import text_expression
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
    table: created at the start if missing (see `create_table`), with the DataFrame's columns. An
        existing one must have all of them, of types that keep their values (string and decimal:
        TEXT or BLOB; bigint: not REAL; double: not TEXT), checked when the job starts; its other
        columns get their default or NULL. Rows are inserted after the epoch is decided, and a row
        refused by a constraint stops the job. Keep such constraints off the table, or give
        `Job.sink` ``on_bad_row="dead_letter"``.
    keys: the columns of a row's key: a row replaces the row of the same key. A primary key or
        unique index must be on exactly these columns; a table made by the sink has it. If
        an epoch has several rows for one key, the task's last row wins; so give each key to one
        task (as a ``groupBy`` of it does). Without keys rows are appended.
    op: beside keys: a string column that is not written, but says what its row does: ``insert`` and
        ``update`` replace the row of the key, ``delete`` deletes it.
    mode: ``append`` or ``upsert``, as for other sinks; left out, it follows from the keys.
    create_table: whether to create a missing table.

    Spark types become: boolean 0/1; integers INTEGER; float and double REAL (NaN becomes NULL, as
    SQLite has none); string TEXT; binary BLOB; decimal TEXT in plain digits; date TEXT
    ``YYYY-MM-DD``; timestamp TEXT ``YYYY-MM-DD HH:MM:SS.ffffffZ``, always in UTC; timestamp_ntz the
    same without the ``Z``; arrays, maps and structs, a window among them, JSON text as Spark's
    ``to_json`` writes it, timestamps in UTC (select ``window.start`` and ``window.end`` for columns
    of their own).

    The sink puts the database into WAL mode: anybody may read at any time. In the driver's process
    read it by Python's ``sqlite3`` alone, which the sink takes too: another copy of SQLite, as
    DuckDB's and ADBC's, breaks the locks of a process on its files.

    Raises ConfigurationError. Needs no driver, and a Python with SQLite 3.37 or later.
    """

    path: str
    table: str
    keys: Sequence[str] = ()
    op: str | None = None
    mode: Literal["append", "upsert"] | None = None
    create_table: bool = True

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
        yes_or_no(self.create_table, f"SQLiteSink {path}, table {table!r}: create_table")
        self._check_keys(f"SQLiteSink {path}, table {table!r}", ("append", "upsert"))

    @property
    def staging_root(self) -> Path:
        """The directory of undecided rows: beside the database, like SQLite's own journal."""
        return Path(self.path + ".seamark")

    @property
    def target(self) -> Target:
        """The table, and how rows get into it."""
        return Target(self.path, self.table, tuple(self.keys), self.op)

    def describe(self) -> str:
        """Return the table and the file."""
        how = f" (upsert by {', '.join(self.keys)})" if self.keys else ""
        return f"SQLite table {self.table} in {self.path}{how}"

    def _expression(self, column: Column) -> str:
        # Spark writes a decimal in plain digits where Arrow would write 1E-7.
        return text_expression(column, ("decimal",))

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        return [f"sqlite: table {self.table.lower()} in {self.path}"]  # SQLite knows no case

    def create_selective_writer(self, context: WriterContext) -> SelectiveSQLiteWriter:
        """Return a writer that also finds the rows refused by the table."""
        return SelectiveSQLiteWriter(self, context)

    look = preflight.look
    read_back = read_back.read
    writer = SQLiteWriter
    committer = SQLiteCommitter
    committable = StagedFile

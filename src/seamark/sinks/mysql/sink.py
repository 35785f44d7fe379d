"""`MySQLSink`: the user's configuration, checked when it is built."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from seamark.contracts.committables import load_committable
from seamark.contracts.read_back import FoundRows, ReadBack
from seamark.contracts.sink import SinkContext, WriterContext
from seamark.model.errors import ConfigurationError
from seamark.model.findings import Finding
from seamark.model.schema import Schema
from seamark.sinks.internal.columns import check_columns, text_expression
from seamark.sinks.internal.servers import listed, shown
from seamark.sinks.internal.sql_sink import SqlSink
from seamark.sinks.mysql import preflight, read_back
from seamark.sinks.mysql.committable import STAGE_PREFIX, MySQLCommittable
from seamark.sinks.mysql.committer import MySQLCommitter
from seamark.sinks.mysql.connection import Address, parse_url
from seamark.sinks.mysql.ledger import TABLE as LEDGER
from seamark.sinks.mysql.writer import MySQLWriter, Target

_MODES = ("xa", "staged", "upsert")


@dataclass(frozen=True, repr=False)
class MySQLSink(SqlSink[MySQLCommittable]):
    """Write rows to a table of a MySQL or MariaDB database, exactly once.

    url: ``mysql://user:password@host:port/database``, with characters such as ``@`` and ``/`` in
        the password percent-encoded; options ``?ssl_ca=…&ssl_verify_identity=true``, ``ssl_cert``,
        ``ssl_key``, ``ssl_verify_cert``, ``unix_socket``. The password is never shown or stored.
    table: an InnoDB table of that database.
    mode:
        ``"xa"``: tasks write into the table inside XA transactions, prepared at the checkpoint and
        committed after it. The table's constraints are checked before the decision. Prepared rows
        keep their locks until the job goes on.
        ``"staged"``: tasks write into stage tables. After the decision one transaction moves the
        rows of the whole epoch, and they become visible at once. If a unique or foreign key of the
        table then refuses a row, the job stops.
        ``"upsert"``: as ``"staged"``, and a row replaces the row with the same `keys`. Of several
        rows of one key in an epoch the last one of its task counts, so give each key to one task
        (as a ``groupBy`` of it does).
    keys: upsert alone: the columns of the table's primary key or unique index.
    op: upsert alone: a string column that is not written, but says what its row does: ``insert``
        and ``update`` replace the row of the keys, ``delete`` deletes it.
    create_table: creates a missing table, with the DataFrame's columns.
    timeout: how long the server may take for an answer; for a block of rows it may take six times
        as long.
    spool: also keeps the rows in the checkpoint until their commit is confirmed. A transaction
        rolled back by somebody else is then written again instead of being lost.

    Spark types become: boolean TINYINT(1); integers of their size; float and double DOUBLE (NaN
    becomes NULL, as MySQL has none, and an infinite number is refused); decimal DECIMAL; string
    LONGTEXT, compared byte by byte; binary LONGBLOB; date DATE; timestamp DATETIME(6) in UTC;
    timestamp_ntz DATETIME(6); arrays, maps and structs JSON, or LONGTEXT with decimals of more than
    15 digits in them. Key columns become VARCHAR(255), or VARBINARY(255) for binary and on MySQL
    before 8.0.17. An existing table may have other types that alter no value: docs/sinks/mysql.md
    lists them. A value that does not fit is refused.

    The database gets a table `_seamark_ledger`, the proof of how each transaction ended. The user
    needs CREATE, DROP, SELECT, INSERT, UPDATE and DELETE in the database, and on MySQL in xa mode
    XA_RECOVER_ADMIN.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[mysql]'``.
    """

    mode: Literal["xa", "staged", "upsert"] = "xa"

    def __post_init__(self) -> None:
        table = self.table
        if not isinstance(table, str) or not table or len(table) > 64 or "\0" in table:
            raise ConfigurationError(
                f"MySQLSink: table is {table!r}; give the name of a table, at most 64 characters"
            )
        if table.lower() == LEDGER or table.lower().startswith(STAGE_PREFIX):
            raise ConfigurationError(f"{self._name}: this table is Seamark's own; choose another")
        _ = self.address
        self._check_settings(_MODES)

    @property
    def address(self) -> Address:
        """The server's address, and the user to connect as."""
        return replace(parse_url(self.url, self._name), timeout_s=self._timeout_s)

    def __repr__(self) -> str:
        at = self.address
        return shown(self, url=f"mysql://{at.user}:***@{at}/{at.database}")

    def describe(self) -> str:
        """See `TwoPhaseCommitSink`."""
        at = self.address
        how = {"xa": "XA", "staged": "staged", "upsert": f"upsert by {', '.join(self.keys)}"}
        return f"MySQL table {at.database}.{self.table} at {at} ({how[self.mode]})"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """See `TwoPhaseCommitSink`: scalars unchanged; arrays, maps and structs as JSON."""
        check_columns(
            schema,
            self.describe(),
            lambda n: not 1 <= len(n) <= 64 or n.endswith(" ") or max(n) > "\uffff",
            as_json=True,
        )
        self._check_key_columns(schema)
        return [text_expression(column, ()) for column in schema]

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        at = self.address
        return [f"mysql://{at}/{at.database}/{self.table}"]

    def inspect(self, context: SinkContext) -> Sequence[Finding]:
        """See `InspectedSink`."""
        name = f"sink `{context.sink_uid}`: {self.describe()}"
        return listed(preflight.look(self, context, name))

    def read_back(self, asked: ReadBack) -> Iterator[FoundRows]:
        """See `ReadableSink`: a table does not tell who has inserted a row."""
        yield from read_back.read(self, asked)

    def create_writer(self, context: WriterContext) -> MySQLWriter:
        """See `TwoPhaseCommitSink`. Connects at the first row."""
        target = Target(self.table, self.mode != "xa", tuple(self.keys), self.op)
        return MySQLWriter(self.address, target, context)

    create_selective_writer = create_writer

    def create_committer(self, context: SinkContext) -> MySQLCommitter:
        """See `TwoPhaseCommitSink`."""
        return MySQLCommitter(self, context)

    load = staticmethod(partial(load_committable, MySQLCommittable))

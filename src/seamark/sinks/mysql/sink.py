"""`MySQLSink`: the user's configuration, checked when it is built."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from seamark.model.errors import ConfigurationError
from seamark.sinks.internal.servers import shown
from seamark.sinks.internal.table_sink import TableSink
from seamark.sinks.mysql import preflight, read_back
from seamark.sinks.mysql.committable import STAGE_PREFIX, MySQLCommittable
from seamark.sinks.mysql.committer import MySQLCommitter
from seamark.sinks.mysql.connection import Address, parse_url
from seamark.sinks.mysql.ledger import TABLE as LEDGER
from seamark.sinks.mysql.writer import MySQLWriter

_MODES = ("xa", "staged", "upsert")


@dataclass(frozen=True, repr=False)
class MySQLSink(TableSink[MySQLCommittable]):
    """Write rows to a table of a MySQL or MariaDB database, exactly once.

    url: ``mysql://user:password@host:port/database``, with characters such as ``@`` and ``/`` in
        the password percent-encoded; options ``?ssl_ca=…&ssl_verify_identity=true``, ``ssl_cert``,
        ``ssl_key``, ``ssl_verify_cert`` (true with ``ssl_ca``, unless given), ``unix_socket``. The
        password is never shown or stored.
    table: an InnoDB table of that database.
    mode:
        ``"staged"``: tasks write into stage tables. After the decision one transaction moves the
        rows of the whole epoch, and they become visible at once. If a unique or foreign key of the
        table then refuses a row, the job stops.
        ``"xa"``: quicker: tasks write into the table inside XA transactions, prepared at the
        checkpoint and committed after it. The table's constraints are checked before the decision.
        Prepared rows keep their locks until the job goes on. MySQL's user needs XA_RECOVER_ADMIN.
        ``"upsert"``: as ``"staged"``, and a row replaces the row with the same `keys`. If an epoch
        has several rows for one key, the task's last row wins; so give each key to one task (as a
        ``groupBy`` of it does).
    keys: upsert alone: the columns of the table's primary key or unique index.
    op: upsert alone: a string column that is not written, but says what its row does: ``insert``
        and ``update`` replace the row of the keys, ``delete`` deletes it.
    create_table: whether to create a missing table, with the DataFrame's columns.
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
    needs CREATE, DROP, SELECT, INSERT, UPDATE and DELETE in the database.

    Raises ConfigurationError. Needs ``pip install 'pyspark-seamark[mysql]'``.
    """

    mode: Literal["staged", "xa", "upsert"] = "staged"

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

    @staticmethod
    def _cannot_name(name: str) -> bool:
        return not 1 <= len(name) <= 64 or name.endswith(" ") or max(name) > "\uffff"

    @property
    def places(self) -> Sequence[str]:
        """See `TwoPhaseCommitSink`."""
        at = self.address
        return [f"mysql://{at}/{at.database}/{self.table}"]

    create_selective_writer = TableSink.create_writer
    look = preflight.look
    writer = MySQLWriter
    committer = MySQLCommitter
    read_back = read_back.read
    committable = MySQLCommittable

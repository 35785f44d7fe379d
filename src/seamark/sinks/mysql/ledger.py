"""The ledger, `_seamark_ledger`: one row per ended transaction, and the proof of every outcome.

MySQL keeps no record of ended XA transactions. Error 1397 (XAER_NOTA) may mean committed, rolled
back, being committed at this moment, or still owned by the connection that prepared it. So every
transaction inserts its own ledger row ``committed`` together with its rows. To learn the outcome
later, look at that row under a lock:

- The row exists: the transaction is committed.
- The row is locked: the transaction is open, prepared, or being committed. This also holds after a
  server crash, because InnoDB recovers the row with its lock.
- The row is missing: insert ``aborted`` in its place, and the primary key stops a late commit. If
  the ledger no longer keeps rows of that epoch, nothing is proved (`has_forgotten`).
"""

from typing import Any

from seamark.sinks.internal.outcomes import LEDGER_EPOCHS, Fate, may_have_forgotten
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql.committable import TransactionName

TABLE = "_seamark_ledger"

_DDL = """
CREATE TABLE IF NOT EXISTS {} (
    owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        COMMENT 'seamark/job id/digest of the sink uid',
    epoch BIGINT NOT NULL,
    branch VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        COMMENT 'generation, epoch, partition, attempt, random',
    row_count BIGINT NOT NULL,
    outcome VARCHAR(9) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    ended_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (owner, epoch, branch)
) ENGINE=InnoDB COMMENT='Seamark: how each transaction ended; do not change'
"""
_KEY = "owner = %s AND epoch = %s AND branch = %s"


def _table(database: str) -> str:
    """Return the ledger's name for statements with values: PyMySQL interprets their ``%``."""
    return server.quoted(database, TABLE).replace("%", "%%")


def prepare(connection: Any, database: str) -> None:
    """Create the ledger, if it is missing."""
    server.execute(connection, _DDL.format(server.quoted(database, TABLE)))


def record(
    connection: Any, database: str, name: TransactionName, row_count: int, outcome: str
) -> None:
    """Insert the transaction's row; raises PyMySQL's duplicate-key error if it exists."""
    server.execute(
        connection,
        f"INSERT INTO {_table(database)} (owner, epoch, branch, row_count, outcome) "
        "VALUES (%s, %s, %s, %s, %s)",
        (name.owner, name.epoch, name.branch, row_count, outcome),
    )


def outcome(connection: Any, database: str, name: TransactionName) -> str | None:
    """Return ``committed`` or ``aborted``; None if there is no row. While the transaction is open
    or being ended, raises PyMySQL's error at once (`is_locked` is true for it)."""
    recorded = server.rows(
        connection,
        f"SELECT outcome FROM {_table(database)} WHERE {_KEY} FOR UPDATE NOWAIT",
        (name.owner, name.epoch, name.branch),
    )
    return str(recorded[0][0]) if recorded else None


def prove(connection: Any, database: str, name: TransactionName) -> Fate:
    """Return COMMITTED or ABORTED, for ever; OPEN while the transaction is open.

    Called outside of any transaction. A transaction without a trace is ``aborted`` from now on.
    """
    errors = server.driver().MySQLError
    for _ in range(3):
        try:
            recorded = outcome(connection, database, name)
            if recorded is None:
                record(connection, database, name, 0, "aborted")
                recorded = "aborted"
            return Fate(recorded)
        except errors as error:
            if server.is_locked(error):
                return Fate.OPEN
            if not server.is_duplicate(error):  # inserted between the two statements: look again
                raise
    return Fate.OPEN


def has_forgotten(connection: Any, database: str, name: TransactionName) -> bool:
    """Return whether the ledger has no row of the transaction, but may have had one. Raises the
    same error as `outcome`."""
    ((newest,),) = server.rows(
        connection, f"SELECT MAX(epoch) FROM {_table(database)} WHERE owner = %s", (name.owner,)
    )
    return may_have_forgotten(name.epoch, newest) and outcome(connection, database, name) is None


def withdraw(connection: Any, database: str, name: TransactionName) -> None:
    """Change the row to ``aborted``, inside the transaction that recorded it as committed."""
    server.execute(
        connection,
        f"UPDATE {_table(database)} SET outcome = 'aborted' WHERE {_KEY}",
        (name.owner, name.epoch, name.branch),
    )


def ended(connection: Any, database: str, owner: str) -> set[str]:
    """Return the branches of the owner's ended transactions; takes no locks and waits for none."""
    return {
        branch
        for (branch,) in server.rows(
            connection,
            f"SELECT branch FROM {_table(database)} WHERE owner = %s",
            (owner,),
        )
    }


def prune(connection: Any, database: str, owner: str, epoch: int) -> None:
    """Delete the rows too old for any driver to ask for."""
    server.execute(
        connection,
        f"DELETE FROM {_table(database)} WHERE owner = %s AND epoch < %s",
        (owner, epoch - LEDGER_EPOCHS),
    )

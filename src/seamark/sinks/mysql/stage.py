"""Stage tables: they hold an attempt's rows until one transaction moves them.

A stage has the target's own column types and, on MariaDB, CHECK constraints. So the move cannot
alter a staged row; only a key or a trigger of the target can refuse it. A stage has no indexes, for
quick loading, but the primary key that some servers ask of every table. Its comment is the
transaction's name.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from seamark.contracts.read_back import DELETE
from seamark.contracts.sink import CommitOutcome
from seamark.sinks.internal.changes import STAGED_OP
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql import ledger
from seamark.sinks.mysql.committable import MySQLCommittable, TransactionName, parse, stage_prefix
from seamark.sinks.mysql.table import read_checks

_ORDER = "_seamark_row"
"""The order in which the rows came."""
NUMBER = f"{_ORDER} BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY"
_FROM = "_seamark_from"
"""The stage's alias: no table's name, as a user's table may be called `s`."""
_DELETED = f"{STAGED_OP} = '{DELETE}'"
_log = logging.getLogger(__name__)


def sql_name(database: str, name: TransactionName) -> str:
    """Return the stage table's name as SQL."""
    return server.quoted(database, name.stage_table)


def create(
    connection: Any, database: str, name: TransactionName, table: str, columns: Sequence[str],
    with_op: bool = False,
) -> None:  # fmt: skip
    """Create an empty stage for these columns of `table`, with `with_op` also for their op."""
    wanted = ", ".join(f"t.{server.quoted(column)}" for column in columns)
    own, origin, exempt = NUMBER, f"{server.quoted(database, table)} AS t", "FALSE"
    if with_op:
        own = f"{STAGED_OP} VARCHAR(6) CHARACTER SET ascii NOT NULL DEFAULT '', {NUMBER}"
        # Makes every column nullable: a row to delete needs its keys alone.
        origin = f"(SELECT 1) AS one LEFT JOIN {origin} ON FALSE"
        exempt = _DELETED
    server.execute(
        connection,
        f"CREATE TABLE {sql_name(database, name)} ({own}) ENGINE=InnoDB COMMENT='{name}' "
        f"AS SELECT {wanted} FROM {origin} WHERE FALSE",
    )
    if checks := read_checks(connection, database, table, columns, exempt):
        added = ", ".join(f"ADD {check}" for check in checks)
        # COPY: the stage is empty, and a server may have another way as its default, which fails.
        altered = f"ALTER TABLE {sql_name(database, name)} {added}, ALGORITHM=COPY"
        server.execute(connection, altered)


def drop(connection: Any, database: str, name: TransactionName) -> None:
    """Drop the stage, if it exists. Raises PyMySQL's error while another connection uses it."""
    server.execute(connection, f"DROP TABLE IF EXISTS {sql_name(database, name)}")


def created(connection: Any, database: str, owner: str) -> dict[TransactionName, float | None]:
    """Return the owner's transactions with a stage table, full or not, and when each was made, in
    seconds since 1970; None if the server does not tell."""
    prefix = stage_prefix(owner)
    tables = server.rows(
        connection,
        "SELECT table_comment, unix_timestamp(create_time) FROM information_schema.tables "
        "WHERE table_schema = %s AND LEFT(table_name, %s) = %s",
        (database, len(prefix), prefix),
    )
    parsed = [(parse(str(comment)), seconds) for comment, seconds in tables]
    return {
        name: None if seconds is None else float(seconds)
        for name, seconds in parsed
        if name is not None and name.owner == owner
    }


def move(
    connection: Any, committable: MySQLCommittable, require_fit: Callable[[MySQLCommittable], None]
) -> CommitOutcome:
    """Insert the stage's rows into their table and write the ledger row, inside the caller's
    transaction. Returns LOST, and records ``aborted``, when the stage is gone or changed; UNKNOWN
    when the ledger no longer keeps its epoch. `require_fit` raises for a table that would alter the
    rows."""
    database, name = committable.database, committable.name
    if ledger.has_forgotten(connection, database, name):
        _log.error("the ledger has forgotten %s", committable.handle)
        return CommitOutcome.UNKNOWN
    errors = server.driver().MySQLError
    try:
        # First: from here on no other driver can move or abort this stage.
        ledger.record(connection, database, name, committable.rows, "committed")
    except errors as error:
        if not server.is_duplicate(error):
            raise
        how = ledger.outcome(connection, database, name)
        return CommitOutcome.ALREADY_COMMITTED if how == "committed" else CommitOutcome.LOST
    stage = sql_name(database, name)
    try:
        ((staged,),) = server.rows(connection, f"SELECT COUNT(*) FROM {stage}")
    except errors as error:
        if server.number(error) != server.NO_SUCH_TABLE:
            raise
        staged = None
    if staged != committable.rows:
        _log.error(
            "stage %s %s", stage,
            "is gone" if staged is None
            else f"holds {staged} rows of the {committable.rows} that were staged",
        )  # fmt: skip
        ledger.withdraw(connection, database, name)
        return CommitOutcome.LOST
    require_fit(committable)
    with_op = bool(
        committable.keys
        and server.rows(connection, f"SHOW COLUMNS FROM {stage} WHERE Field = '{STAGED_OP}'")
    )
    if with_op:
        server.execute(connection, _delete_statement(committable, stage))
    with connection.cursor() as cursor:
        cursor.execute(_move_statement(committable, stage, with_op))
        warned = cursor.warning_count
    if warned and (cut := server.warnings(connection, server.CUT)):
        # A decimal loses digits, or a text the blanks at its end.
        raise server.driver().DataError(server.CUT, f"{cut}: it was altered while the job ran")
    return CommitOutcome.COMMITTED


def _delete_statement(committable: MySQLCommittable, stage: str) -> str:
    """Return the DELETE for every key that the stage deletes. A newer row of the key comes
    afterwards, and is then made anew, not changed."""
    target = server.quoted(committable.database, committable.table)
    keys = map(server.quoted, committable.keys)
    same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
    return f"DELETE t FROM {target} AS t JOIN {stage} AS s ON {same} WHERE s.{_DELETED}"


def _move_statement(committable: MySQLCommittable, stage: str, with_op: bool) -> str:
    """Return the INSERT for a stage's rows, in their order of staging."""
    into = server.quoted(committable.database, committable.table)
    columns = [server.quoted(name) for name in committable.columns]
    statement = (
        f"INSERT INTO {into} ({', '.join(columns)}) "
        f"SELECT {', '.join(f'{_FROM}.{name}' for name in columns)} FROM {stage} AS {_FROM}"
    )
    if with_op:
        # Of each key the last row. Without ORDER BY: MySQL 8.0.15 then updates with wrong values.
        # To the target's index -0.0 and 0.0 are one key, to GROUP BY two.
        kinds = dict(zip(committable.columns, committable.types, strict=False))
        by = ", ".join(
            server.quoted(key) + (" + 0" if kinds.get(key) in ("float", "double") else "")
            for key in committable.keys
        )
        statement += (
            f" JOIN (SELECT MAX({_ORDER}) AS {_ORDER} FROM {stage} GROUP BY {by}) AS newest "
            f"ON {_FROM}.{_ORDER} = newest.{_ORDER} WHERE NOT {_FROM}.{_DELETED}"
        )
    if not committable.keys:
        return statement
    keys = {key.lower() for key in committable.keys}
    changed = [server.quoted(name) for name in committable.columns if name.lower() not in keys]
    # A row of keys alone has no other column to update.
    changed = changed or [server.quoted(committable.keys[0])]
    return f"{statement} ON DUPLICATE KEY UPDATE " + ", ".join(
        f"{into}.{name} = {_FROM}.{name}" for name in changed
    )

"""``mode="prepared"``: rows go straight into the target, in one transaction. PREPARE TRANSACTION
makes it durable; any connection of the same role and database may end it.

`pg_xact_status` of its 64-bit id proves how a transaction ended, in the history where the id was
given: that of one cluster (its system identifier) and one timeline, which ends with a failover or
a restore. Elsewhere the id may be another client's.
"""

import logging
from collections.abc import Iterator
from typing import Any

from seamark.contracts.sink import Lingering, SinkContext
from seamark.model import failpoints
from seamark.model.errors import PreCommitError
from seamark.model.ignored import ignored
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.postgres.committable import PostgresCommittable, from_gid, gid, gid_prefix
from seamark.sinks.postgres.connection import driver, within
from seamark.sinks.postgres.table import Table
from seamark.sinks.postgres.writer import CopyWriter

_log = logging.getLogger(__name__)

ABORT_TIMEOUT_S = 5.0
# The control file has the timeline of the last checkpoint, which may be older than a promotion.
_HISTORY = (
    "SELECT system_identifier, "
    "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int FROM pg_control_system()"
)


class PreparedWriter(CopyWriter):
    """One attempt, one prepared transaction."""

    _gid = ""

    def _lock(self, connection: Any) -> None:
        # Keep the columns unchanged between their description and the COPY.
        connection.execute(f"LOCK TABLE {self._table} IN ROW EXCLUSIVE MODE")

    def _begin(self, connection: Any, table: Table) -> str:
        return table.sql

    def _flush(self) -> PostgresCommittable:
        at = self._context
        xid = int(self._connection.execute("SELECT pg_current_xact_id()::text").fetchone()[0])
        system, timeline = _history(self._connection)
        self._gid = handle = gid(at, f"x{xid}")  # before: the answer may be lost
        try:
            said = self._connection.execute(f"PREPARE TRANSACTION {_literal(handle)}").statusmessage
        except driver().Error:
            if not self._connection.closed:  # the server refuses: the name is another's
                self._gid = ""
            raise
        if said != "PREPARE TRANSACTION":
            # PREPARE rolls a failed transaction back without an error.
            raise PreCommitError(f"{self._name}: PREPARE TRANSACTION answers {said!r}, rolled back")
        failpoints.reached("transaction-prepared")
        return PostgresCommittable.of(
            at, handle, self._rows, xid=xid, system=system, timeline=timeline
        )

    def abort(self) -> None:
        """Roll back: a prepared row keeps its locks, and the next attempt would wait for them."""
        super().abort()
        if self._gid:
            with ignored(f"the rollback of {self._gid}"):
                connection = self._server.connect()
                with connection, within(connection, ABORT_TIMEOUT_S):
                    connection.execute(f"ROLLBACK PREPARED {_literal(self._gid)}")


def end(connection: Any, committable: PostgresCommittable, *, commit: bool) -> Fate:
    """Commit or roll back; raises the driver's Error while the outcome is not known."""
    verb = "COMMIT" if commit else "ROLLBACK"
    try:
        connection.execute(f"{verb} PREPARED {_literal(committable.handle)}")
    except driver().errors.UndefinedObject:  # never existed, or has been ended already
        return _fate(connection, committable)
    return Fate.ENDED_NOW


def _fate(connection: Any, committable: PostgresCommittable) -> Fate:
    fate = _status(connection, committable)
    if not committable.system:
        return fate
    system, timeline = _history(connection)
    # A later timeline has the ids of an earlier one's beginning: one that it did not commit is not
    # there, one that it committed may be another client's.
    proved = system == committable.system and (
        timeline == committable.timeline
        or (timeline > committable.timeline and fate is not Fate.COMMITTED)
    )
    if proved:
        return fate
    _log.error(
        "%s: prepared by the server %d on its timeline %d, and this is %d on %d: a failover or a "
        "restore lies between, and its number proves nothing here. If it was committed before, "
        "the table has %d rows with xmin %d",
        committable.handle, committable.system, committable.timeline, system, timeline,
        committable.rows, committable.xid % 2**32,
    )  # fmt: skip
    return Fate.GONE


def _history(connection: Any) -> tuple[int, int]:
    """Return the server's system identifier and timeline; zeros where it does not tell: a managed
    one may lack these functions or refuse them, as Aurora does without logical replication."""
    try:
        with connection.transaction():  # the caller's goes on
            system, timeline = connection.execute(_HISTORY).fetchone()
    except driver().Error as error:
        if str(error.sqlstate)[:2] not in ("0A", "42", "55"):
            raise
        return 0, 0
    return system, timeline


def _status(connection: Any, committable: PostgresCommittable) -> Fate:
    ask = "SELECT pg_xact_status(%s::text::xid8)"
    try:
        status = connection.execute(ask, [committable.xid]).fetchone()[0]
    except driver().errors.InvalidParameterValue:
        _log.error(
            "%s: of the future: the server was set back to an older state", committable.handle
        )
        return Fate.ABORTED
    if status is None:
        _log.error("%s: too old: the server has forgotten it", committable.handle)
        return Fate.FORGOTTEN
    return Fate.OPEN if status == "in progress" else Fate(status)


def list_open(connection: Any, context: SinkContext) -> Iterator[Lingering[PostgresCommittable]]:
    """Yield the prepared transactions of one job's sink in this database."""
    rows = connection.execute(
        "SELECT gid FROM pg_prepared_xacts "
        "WHERE database = current_database() AND starts_with(gid, %s)",
        [gid_prefix(context)],
    ).fetchall()
    for (text,) in rows:
        committable = from_gid(text, context)
        if committable is not None:
            yield Lingering(committable, committable.generation)


def started_at(connection: Any) -> dict[str, float]:
    """Return by gid when each transaction was prepared, in seconds since 1970."""
    rows = connection.execute(
        "SELECT gid, extract(epoch FROM prepared)::float8 FROM pg_prepared_xacts "
        "WHERE database = current_database()"
    )
    return {str(gid): float(seconds) for gid, seconds in rows.fetchall()}


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

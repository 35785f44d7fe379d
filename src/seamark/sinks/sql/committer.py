"""The driver's side: moves stages into the target, proves each outcome by the ledger, lists what
lingers.

Invariants:
- A transaction's rows are in the target if and only if its ledger row says ``committed``.
- Rows leave the stage in the transaction that writes their ledger row, or after it.

Failpoint: `ledger-committed` after the transaction that moved stages.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from seamark.contracts.attempt_name import AttemptName
from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, SinkContext
from seamark.model import failpoints
from seamark.model.errors import AbortFailedError
from seamark.sinks.internal.committers import ConnectedCommitter, not_committed
from seamark.sinks.internal.outcomes import Fate, may_have_forgotten
from seamark.sinks.sql import duckdb, tables
from seamark.sinks.sql.committable import SqlCommittable, owner_of
from seamark.sinks.sql.database import Session, failures, is_lasting
from seamark.sinks.sql.tables import EndedMeanwhileError
from seamark.sinks.sql.types import holds

if TYPE_CHECKING:
    from seamark.sinks.sql.sink import SqlSink

_log = logging.getLogger(__name__)
_SLOWEST_MOVE_ROWS_PER_S = 5_000
_UPSERT_TRIES = 5
"""Another writer's row of a key may come between our DELETE and INSERT, which then is refused; the
next try finds it."""


class SqlCommitter(ConnectedCommitter["SqlSink"]):
    """Keeps one connection between calls, and replaces a broken one."""

    def __init__(self, sink: "SqlSink", context: SinkContext) -> None:
        super().__init__(sink, context, _log)
        self._database = sink.database
        self._connection: Session = Session(self._database)
        self._described: dict[tuple[str, str, bool], tables.Target | None] = {}

    def commit(self, committables: Sequence[SqlCommittable]) -> Sequence[CommitOutcome]:
        """Move the stages of this call, all or none.

        LOST: the transaction was aborted, or its rows are gone from the stage. UNKNOWN: the ledger
        no longer keeps its epoch. Raises CommitFailedError when the table refuses the rows.
        """
        more_s = sum(max(c.rows, 0) for c in committables) / _SLOWEST_MOVE_ROWS_PER_S
        tries = _UPSERT_TRIES if any(c.keys for c in committables) else 1
        for left in reversed(range(tries)):
            try:
                fates = self._end(committables, self._commit_one, more_s)
                break
            except failures() as error:
                if not is_lasting(error):
                    raise
                if not left:
                    said = self._database.said(error)
                    raise not_committed(self._name, committables[0].epoch, said) from error
        if committables:
            failpoints.reached("ledger-committed")
        return [fate.of_commit for fate in fates]

    def abort(self, committables: Sequence[SqlCommittable]) -> Sequence[AbortOutcome]:
        """Write a tombstone for each transaction, and delete its rows from the stage."""
        try:
            return [fate.of_abort for fate in self._end(committables, _abort_one)]
        except failures() as error:
            if not is_lasting(error):
                raise
            said = self._database.said(error)
            raise AbortFailedError(f"{self._name}: stages cannot be emptied: {said}") from error

    def list_lingering(self) -> Iterator[Lingering[SqlCommittable]]:
        """Yield what is staged without a ledger row; delete rows with one, which came late."""
        return iter(self._connection.run(self._list))

    def _list(self, connection: Any) -> list[Lingering[SqlCommittable]]:
        place, owner = self._sink.table_name[0], owner_of(self._context)
        committables = []
        if self._database.dialect == "duckdb":
            staged = duckdb.staged_files(self._database.staging_root, owner)
        else:
            staged = tables.staged_handles(connection, place, owner)
        for stage, handle in staged:
            if (name := AttemptName.parse(handle)) is not None:
                committables.append(
                    SqlCommittable.found(self._context, handle, name, place=place, stage=stage)
                )
        ended = tables.outcomes(connection, committables)
        over = [c for c in committables if c.handle in ended]
        for committable in over:
            tables.discard(connection, committable)
        tables.discard_files(over)
        return [Lingering(c, c.generation) for c in committables if c.handle not in ended]

    def _end(
        self,
        committables: Sequence[SqlCommittable],
        end_one: Callable[[Any, SqlCommittable], Fate],
        more_s: float = 0.0,
    ) -> list[Fate]:
        """End each transaction that has not ended, all or none. OPEN for all, while another driver
        ends one of them."""
        if not committables:
            return []

        ended: dict[str, Fate] = {}

        def end(connection: Any) -> list[Fate]:
            self._described.clear()
            ended.update(tables.outcomes(connection, committables))
            fates = [ended.get(c.handle) or end_one(connection, c) for c in committables]
            tables.prune(connection, committables)
            return fates

        run = self._connection.run
        try:
            fates = run(end, limit_s=self._database.timeout_s + more_s)
        except EndedMeanwhileError:
            pass
        except failures() as error:
            # Some databases find the second of two ledger rows at COMMIT alone.
            if not is_lasting(error):
                raise
            if run(lambda c: tables.outcomes(c, committables)).keys() <= ended.keys():
                raise
        else:
            self._reasons.forget()
            over = (Fate.ENDED_NOW, Fate.COMMITTED, Fate.ABORTED)
            pairs = zip(committables, fates, strict=True)
            tables.discard_files(c for c, fate in pairs if fate in over)
            return fates
        self._reasons.say("another driver ends the same transactions")
        return [Fate.OPEN] * len(committables)

    def _commit_one(self, connection: Any, committable: SqlCommittable) -> Fate:
        newest = tables.newest_epoch(connection, committable)
        if may_have_forgotten(committable.epoch, newest):
            _log.error("%s: the ledger has forgotten %s", self._name, committable.handle)
            return Fate.FORGOTTEN
        staged = tables.staged_rows(connection, committable)
        if staged != committable.rows:
            _log.error("%s: stage %s has %s of the %d rows of %s", self._name, committable.stage,
                       staged or "none", committable.rows, committable.handle)  # fmt: skip
            tables.record(connection, committable, Fate.ABORTED)
            return Fate.ABORTED
        tables.record(connection, committable, Fate.COMMITTED)  # first: it is the lock
        if self._database.dialect == "mysql":
            self._require_transactions(connection, committable)
        tables.move(connection, committable)
        self._require_fit(connection, committable)
        tables.discard(connection, committable)
        return Fate.ENDED_NOW

    def _require_transactions(self, connection: Any, c: SqlCommittable) -> None:
        """Raise CommitFailedError for an engine in which rows would stay after a rollback."""
        # From this read to the transaction's end the server lets nobody alter the table.
        of = sa.table(c.target, schema=c.place or None)
        connection.execute(sa.select(sa.literal(1)).select_from(of).where(sa.false()))
        target = self._target(connection, c)
        if target is not None and target.engine != "InnoDB":
            said = f"{c.target} has the engine {target.engine} now: ALTER TABLE … ENGINE=InnoDB"
            raise not_committed(self._name, c.epoch, said)

    def _require_fit(self, connection: Any, c: SqlCommittable) -> None:
        """Raise CommitFailedError if the target was altered since the rows were staged and may have
        altered them, or found others by their keys."""
        target = self._target(connection, c)
        for name, kind in zip(c.columns, c.types, strict=False):
            into = target.find(name) if target is not None else None
            if into is not None and not holds(into.form, kind, key=name in c.keys):
                altered = f"column {name!r} of {c.target} would alter values of type {kind}"
                said = f"{altered}. It was altered while the job ran: alter it back"
                raise not_committed(self._name, c.epoch, said)

    def _target(self, connection: Any, c: SqlCommittable) -> tables.Target | None:
        """Describe the target. Servers alter no table that a transaction has written to, so once in
        a transaction will do."""
        of = (c.place, c.target, bool(c.keys))
        if of not in self._described:
            dialect = self._database.dialect
            self._described[of] = tables.describe(connection, dialect, *of[:2], keys=of[2])
        return self._described[of]


def _abort_one(connection: Any, committable: SqlCommittable) -> Fate:
    tables.record(connection, committable, Fate.ABORTED)
    if tables.has_stage(connection, committable):
        tables.discard(connection, committable)
    return Fate.ABORTED

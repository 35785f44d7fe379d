"""The driver's side: ends XA transactions and moves stages, and proves each outcome by the ledger.

Invariants:
- A transaction's rows are in the table if and only if its ledger row says ``committed``.
- A stage table is dropped only after its ledger row is durable.

Failpoints: `xa-committed` after each XA COMMIT's answer; `ledger-committed` after stages moved.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from seamark.contracts.sink import AbortOutcome, CommitOutcome, Lingering, OpenFacts, SinkContext
from seamark.model import failpoints
from seamark.model.schema import Column
from seamark.sinks.internal.committers import ConnectedCommitter, closed_by_errors, not_committed
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql import ledger, preflight, stage
from seamark.sinks.mysql.committable import MySQLCommittable, TransactionName, from_xid, owner_of

if TYPE_CHECKING:
    from seamark.sinks.mysql.sink import MySQLSink

_log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 1
_SLOWEST_MOVE_ROWS_PER_S = 5_000
_PRUNE_EVERY_EPOCHS = 100


class MySQLCommitter(ConnectedCommitter["MySQLSink"]):
    """See `Committer`."""

    def __init__(self, sink: "MySQLSink", context: SinkContext) -> None:
        super().__init__(sink, context, _log)
        self._address = sink.address
        self._owner = owner_of(context.job_id, context.sink_uid)
        self._timeout_s = 0.0
        self._pruned = 0

    def commit(self, committables: Sequence[MySQLCommittable]) -> Sequence[CommitOutcome]:
        """See `Committer`. The stages of one call become visible together, XA transactions one
        after another. Raises CommitFailedError when the table refuses staged rows."""
        stages = [c for c in committables if c.way == "stage"]
        with closed_by_errors(self):
            moved = iter(self._move(stages) if stages else ())
            outcomes = [
                next(moved) if c.way == "stage" else self._commit_xa(c) for c in committables
            ]
        if committables and CommitOutcome.RETRY not in outcomes:
            self._reasons.forget()
            self._prune(committables[0])
        return outcomes

    def abort(self, committables: Sequence[MySQLCommittable]) -> Sequence[AbortOutcome]:
        """See `Committer`. A late commit finds the rollback, or the tombstone in the ledger."""
        with closed_by_errors(self):
            return [self._abort_one(committable) for committable in committables]

    def list_lingering(self) -> Iterable[Lingering[MySQLCommittable]]:
        """See `Committer`. Lists prepared XA transactions, and stage tables without a ledger row,
        of every mode. Drops stages already ended but not dropped yet."""
        with closed_by_errors(self):
            return self._list_open()

    def describe_open(self, committables: Sequence[MySQLCommittable]) -> Sequence[OpenFacts]:
        """See `DescribesTransactions`. The server knows the age of stages alone; nothing times
        out."""
        database = self._address.database
        with closed_by_errors(self):
            since = stage.created(self._connected(), database, self._owner)
        return [OpenFacts(since.get(one.name)) for one in committables]

    def _commit_xa(self, committable: MySQLCommittable) -> CommitOutcome:
        ended = self._end_xa("COMMIT", committable)
        if ended:
            failpoints.reached("xa-committed")
        elif ledger.has_forgotten(self._connected(), committable.database, committable.name):
            _log.error("%s: the ledger has forgotten %s", self._name, committable.handle)
            return Fate.FORGOTTEN.of_commit
        fate = self._prove(committable)
        return (Fate.ENDED_NOW if ended and fate is Fate.COMMITTED else fate).of_commit

    def _abort_one(self, committable: MySQLCommittable) -> AbortOutcome:
        if committable.way == "xa":
            self._end_xa("ROLLBACK", committable)
        fate = self._prove(committable)
        if fate is not Fate.OPEN and committable.way == "stage":
            self._drop([committable])
        return fate.of_abort

    def _end_xa(self, how: str, committable: MySQLCommittable) -> bool:
        """Ask the server to end a prepared transaction; False if it refuses. Neither answer proves
        anything: a refusal has several reasons, and MySQL 8.0 reports success to both a commit and
        a rollback arriving together. The ledger has the proof."""
        connection = self._connected()
        try:
            server.execute(connection, f"XA {how} {committable.name.xid}")
            return True
        except server.driver().MySQLError as error:
            if server.is_away(error):
                raise
            _log.debug("%s: XA %s %s: %s", self._name, how, committable.handle, error)
            return False

    def _prove(self, committable: MySQLCommittable) -> Fate:
        connection = self._connected()
        fate = ledger.prove(connection, committable.database, committable.name)
        if fate is Fate.OPEN:
            self._reasons.say(f"transaction {committable.handle} is in use by another connection")
        return fate

    def _move(self, committables: Sequence[MySQLCommittable]) -> list[CommitOutcome]:
        """Move the stages into their table and write the ledger, all or nothing."""
        rows = sum(max(c.rows, 0) for c in committables)
        connection = self._connected(rows / _SLOWEST_MOVE_ROWS_PER_S)
        errors = server.driver().MySQLError
        require_fit = partial(self._require_fit, connection, {})
        server.execute(connection, "START TRANSACTION")
        try:
            outcomes = [stage.move(connection, c, require_fit) for c in committables]
            server.execute(connection, "COMMIT")
        except errors as error:
            if server.is_over(error):
                raise type(error)(
                    server.number(error),
                    f"the move of {rows} rows has taken more than {self._timeout_s:g} s; if the "
                    "server is only slow, raise timeout=",
                ) from error
            if not server.is_lasting(error):
                raise
            raise not_committed(self._name, committables[0].name.epoch, error) from error
        failpoints.reached("ledger-committed")
        gone = (CommitOutcome.LOST, CommitOutcome.UNKNOWN)
        self._drop([c for c, how in zip(committables, outcomes, strict=True) if how not in gone])
        return outcomes

    def _require_fit(
        self, connection: Any, known: dict[str, preflight.TableFacts], c: MySQLCommittable
    ) -> None:
        """Raise CommitFailedError if the table was altered since the rows were staged, and would
        alter them, overwrite others, or keep them after a rollback. Nobody alters it then before
        the end of the transaction, so a table is described once: `known` has those that are."""
        if not c.types:
            return
        sink = replace(
            self._sink, table=c.table, mode="upsert" if c.keys else "staged", keys=c.keys, op=None
        )
        if c.table not in known:
            into = server.quoted(c.database, c.table)
            server.rows(connection, f"SELECT 1 FROM {into} LIMIT 0")  # locks its definition
            known[c.table] = preflight.ask_table(connection, sink, c.table)
        schema, stage_table = tuple(map(Column, c.columns, c.types)), c.name.stage_table
        if altered := preflight.altered(
            connection, sink, schema, self._name, stage_table, known[c.table]
        ):
            why = f"{altered}. It was altered while the job ran"
            raise not_committed(self._name, c.name.epoch, why)

    def _drop(self, committables: Iterable[MySQLCommittable]) -> None:
        """Drop the stages, best effort: `list_lingering` drops those with a ledger row."""
        errors = server.driver().MySQLError
        for committable in committables:
            try:
                stage.drop(self._connected(), committable.database, committable.name)
            except errors as error:
                _log.info("%s: stage %s stays for now: %s", self._name, committable.handle, error)
                if server.is_away(error):
                    self.close()
                    return

    def _list_open(self) -> list[Lingering[MySQLCommittable]]:
        connection = self._connected()
        database = self._address.database
        committables = [
            MySQLCommittable(str(name), "xa", database)
            for name in self._prepared(connection)
            if name.owner == self._owner
        ]
        ended = ledger.ended(connection, database, self._owner)
        over: list[MySQLCommittable] = []
        for name in stage.created(connection, database, self._owner):
            committable = MySQLCommittable(str(name), "stage", database)
            (over if name.branch in ended else committables).append(committable)
        self._drop(over)
        return [Lingering(c, c.name.generation) for c in committables]

    def _prepared(self, connection: Any) -> list[TransactionName]:
        try:
            listed = server.prepared_xids(connection)
        except server.driver().MySQLError as error:
            if self._sink.mode == "xa" or server.is_away(error):
                raise
            # MySQL 8 without XA_RECOVER_ADMIN; this mode creates no XA transactions.
            _log.info("%s: XA transactions of an earlier mode cannot be looked for: %s",
                      self._name, error)  # fmt: skip
            return []
        names = [from_xid(*xid) for xid in listed]
        return [name for name in names if name is not None]

    def _prune(self, committable: MySQLCommittable) -> None:
        epoch = committable.name.epoch
        if epoch < self._pruned + _PRUNE_EVERY_EPOCHS:
            return
        self._pruned = epoch
        try:
            ledger.prune(self._connected(), committable.database, self._owner, epoch)
        except server.driver().MySQLError as error:
            _log.info("%s: old ledger rows stay for now: %s", self._name, error)
            self.close()

    def _connected(self, more_s: float = 0.0) -> Any:
        timeout_s = self._address.timeout_s + more_s
        if self._connection is not None and self._timeout_s < timeout_s:
            self.close()
        if self._connection is None:
            self._connection = server.connect(
                self._address, timeout_s=timeout_s, lock_timeout_s=LOCK_TIMEOUT_S
            )
            self._timeout_s = timeout_s
            server.read_committed(self._connection)
            server.see_others(self._connection)  # else a stage of another node's would be lost
        return self._connection

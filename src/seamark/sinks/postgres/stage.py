"""``mode="staged"`` and ``mode="upsert"``: rows go into a stage table of the attempt. One
transaction moves it into the target, or merges it by key, and writes the ledger's row.

A stage table is an ordinary, logged table. An unlogged one is emptied when the server recovers from
a crash, and a flushed transaction must survive that (`docs/adr/0007-postgresql.md`).
"""

import logging
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from seamark.contracts.attempt_name import random_token
from seamark.contracts.dead_letters import RefusedRow
from seamark.contracts.read_back import DELETE
from seamark.contracts.sink import AbortOutcome, CommitOutcome, WriterContext
from seamark.model import failpoints
from seamark.model.errors import CommitFailedError
from seamark.sinks.internal import changes
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.columns import written_columns
from seamark.sinks.internal.outcomes import Fate
from seamark.sinks.postgres import ledger
from seamark.sinks.postgres.committable import PostgresCommittable, gid
from seamark.sinks.postgres.connection import Server
from seamark.sinks.postgres.stage_rules import rules
from seamark.sinks.postgres.table import (
    Column,
    Table,
    describe,
    key_misfits,
    targets,
    volatile_parts,
)
from seamark.sinks.postgres.types import ColumnType, keeps
from seamark.sinks.postgres.writer import CopyWriter

log = logging.getLogger(__name__)

STAGE_PREFIX = "_seamark_stage_"
_OP = Column(changes.STAGED_OP, 0, ColumnType("text", 25, "text"), True, False, False)
_COLUMNS = """
SELECT s.attname, (s.atttypid, s.atttypmod, s.attcollation) <>
  (t.atttypid, t.atttypmod, t.attcollation)
FROM pg_attribute s LEFT JOIN pg_attribute t ON t.attrelid = to_regclass(%s)
  AND t.attname = s.attname AND NOT t.attisdropped
WHERE s.attrelid = to_regclass(%s) AND s.attnum > 0 AND NOT s.attisdropped
  AND s.attgenerated = '' ORDER BY s.attnum
"""
"""A stage's columns, each with whether the target's has another type."""
_DELETED = f"{changes.STAGED_OP} = '{DELETE}'"


class StageWriter(CopyWriter):
    """One attempt, one stage table."""

    def __init__(
        self, server: Server, table: str, context: WriterContext, keys: Sequence[str] = (),
        op: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(server, table, context)
        self._wanted_keys = keys
        self._op = op
        self._keys: tuple[str, ...] = ()
        self._unique = random_token()
        self._target: Table | None = None
        self._stage = STAGE_PREFIX + self._unique

    def write(self, batch: pa.RecordBatch) -> None:
        """See `CopyWriter`."""
        changes.require_fit(changes.unfit(batch, (), self._op), self._name)
        super().write(batch)

    def write_accepted(self, batch: pa.RecordBatch) -> Sequence[RefusedRow]:
        """See `SelectiveWriter`."""
        unfit = changes.unfit(batch, (), self._op)
        return changes.take_others(batch, unfit, super().write_accepted)

    def _described(self, table: Table, rows: pa.Schema) -> list[Column]:
        columns = targets(table, written_columns(rows, self._op))
        if self._op is not None:
            columns.insert(rows.get_field_index(self._op), _OP)
        return columns

    def _begin(self, connection: Any, table: Table) -> str:
        self._target = table
        key_columns = [table.find(key) for key in self._wanted_keys]
        keys = self._keys = tuple(column.name for column in key_columns if column is not None)
        # Refuse rows here, before the decision, that the target would refuse after it. A row to
        # delete needs its keys alone.
        deletes = "false" if self._op is None else _DELETED
        parts = []
        for c in self._columns:
            rule, type_ = " NOT NULL" if c.not_null or c.name in keys else "", c.type.shown
            if self._op is not None and c.name not in (*keys, _OP.name):
                named = quoted(f"{c.name} is not null")
                if rule:
                    rule = f" CONSTRAINT {named} CHECK ({deletes} OR {quoted(c.name)} IS NOT NULL)"
                if c.type.base:
                    type_ = c.type.base
                    cast = f"num_nulls({quoted(c.name)}::{c.type.shown}) = 0"
                    rule = f" CONSTRAINT {named} CHECK ({deletes} OR {cast})"
            parts.append(f"{quoted(c.name)} {type_}{c.type.collation}{rule}")
        stage = quoted(table.schema, self._stage)
        others, indexes = rules(connection, table, self._columns, stage, deletes)
        listed = ", ".join(parts + others)
        make = f"CREATE TABLE {stage} ({listed}) WITH (autovacuum_enabled = false)"
        connection.execute("; ".join([make, *indexes]))
        return stage

    def _flush(self) -> PostgresCommittable:
        at, table = self._context, self._target
        assert table is not None
        committable = PostgresCommittable.of(
            at, gid(at, f"s{self._unique}"), self._rows,
            place=table.schema, stage=self._stage, target=table.name, keys=self._keys,
        )  # fmt: skip
        ledger.record(self._connection, committable, "staged")
        self._connection.execute("COMMIT")
        failpoints.reached("stage-written")
        return committable


def commit(connection: Any, committables: Sequence[PostgresCommittable]) -> list[CommitOutcome]:
    """Move the rows of each stage. Called inside a transaction: all become visible, or none."""
    known = _lock(connection, committables)
    fates, fit = [], set[tuple[str, str, tuple[str, ...]]]()
    for committable in committables:
        state = known.get(committable.handle)
        if state is None:
            log.error("stage %s is unknown to the ledger", committable.handle)
            fates.append(Fate.FORGOTTEN)
        elif state != "staged":
            fates.append(Fate(state))
        elif _is_whole(connection, committable):
            _move(connection, committable, fit)
            ledger.record(connection, committable, "committed")
            fates.append(Fate.ENDED_NOW)
        else:
            fates.append(Fate.ABORTED)
    ledger.forget(connection, committables)
    return [fate.of_commit for fate in fates]


def abort(connection: Any, committables: Sequence[PostgresCommittable]) -> list[AbortOutcome]:
    """Drop the stages not committed, and record this in the ledger. Called inside a transaction."""
    known = _lock(connection, committables)
    outcomes = []
    for committable in committables:
        if known.get(committable.handle) == "committed":
            outcomes.append(AbortOutcome.COMMITTED)
            continue
        ledger.record(connection, committable, "aborted")
        connection.execute(f"DROP TABLE IF EXISTS {_stage(committable)}")
        outcomes.append(AbortOutcome.ABORTED)
    return outcomes


def _lock(connection: Any, committables: Sequence[PostgresCommittable]) -> dict[str, str]:
    known: dict[str, str] = {}
    for place in sorted({c.place for c in committables}):
        handles = [c.handle for c in committables if c.place == place]
        known.update(ledger.outcomes(connection, place, handles))
    return known


def _is_whole(connection: Any, committable: PostgresCommittable) -> bool:
    """Whether the stage still has all its rows: somebody may have dropped or emptied it."""
    stage = _stage(committable)
    count = None
    if connection.execute("SELECT to_regclass(%s)", [stage]).fetchone()[0] is not None:
        count = connection.execute(f"SELECT count(*) FROM {stage}").fetchone()[0]
    if count != committable.rows:
        log.error(
            "stage table %s has %s of the %d rows of %s",
            stage, "none" if count is None else count, committable.rows, committable.handle,
        )  # fmt: skip
    return bool(count == committable.rows)


def _move(
    connection: Any, committable: PostgresCommittable, fit: set[tuple[str, str, tuple[str, ...]]]
) -> None:
    """Move a stage's rows. `fit` has the targets and keys already looked at."""
    stage, target = _stage(committable), quoted(committable.place, committable.target)
    connection.execute(f"LOCK TABLE ONLY {target} IN ROW EXCLUSIVE MODE")  # nobody alters it now
    columns = connection.execute(_COLUMNS, [target, stage]).fetchall()
    names = [name for name, _ in columns if name != _OP.name]
    of = (committable.place, committable.target, committable.keys)
    altered = any(differs for _, differs in columns)
    if altered or of not in fit:
        _require_fit(connection, committable, altered=altered)
        fit.add(of)
    listed = ", ".join(map(quoted, names))
    move = f"INSERT INTO {target} ({listed}) SELECT {listed} FROM {stage}"
    if committable.keys:
        kept = ""
        if len(names) < len(columns):
            keys = ", ".join(map(quoted, committable.keys))
            # An error in place of a delete that passes over the rows hidden by a row policy.
            connection.execute("SET LOCAL row_security = off")
            # Also a key with a newer row: the row is then made anew, not changed.
            connection.execute(
                f"DELETE FROM {target} WHERE ({keys}) IN "
                f"(SELECT {keys} FROM {stage} WHERE {_DELETED})"
            )
            kept = f"WHERE NOT ({_DELETED}) "
        move = merge_statement(target, stage, names, committable.keys, kept)
    connection.execute(move)
    connection.execute(f"DROP TABLE {stage}")


def merge_statement(
    target: str, stage: str, names: Sequence[str], keys: Sequence[str], kept: str = ""
) -> str:
    """Return the INSERT of a stage's newest row of each key. `kept` is a WHERE."""
    listed, by = ", ".join(map(quoted, names)), ", ".join(map(quoted, keys))
    others = [quoted(name) for name in names if name not in keys]
    change = ", ".join(f"{name} = excluded.{name}" for name in others)
    # Of several rows of one key take the last one written: ctid follows the task's order.
    return (
        f"INSERT INTO {target} AS target ({listed}) SELECT {listed} FROM "  # not `excluded`
        f"(SELECT DISTINCT ON ({by}) * FROM {stage} ORDER BY {by}, ctid DESC) AS newest "
        f"{kept}ON CONFLICT ({by}) DO {f'UPDATE SET {change}' if others else 'NOTHING'}"
    )


def _require_fit(connection: Any, committable: PostgresCommittable, *, altered: bool) -> None:
    """Raise CommitFailedError if the target was altered since the rows were staged, and would alter
    or lose them or take two keys for one. `altered`: it has columns of other types."""
    target = describe(connection, quoted(committable.place, committable.target))
    staged = describe(connection, _stage(committable)) if altered else None
    assert target is not None
    misfits = key_misfits(connection, target, (), committable.keys)
    why = "; ".join(misfits) or volatile_parts(connection, target)
    for column in staged.columns if staged is not None else ():
        into = target.find(column.name)
        if into is not None and not keeps(column.type, into.type):
            why = (
                f"column {into.name!r} had type {column.type.shown} when they were staged, and "
                f"{into.type.shown} would alter them"
            )
    if why:
        raise CommitFailedError(
            f"PostgreSQL table {target.sql} was altered while the job ran, and does not take the "
            f"rows of epoch {committable.epoch} as they are: {why}. They are decided and not "
            "visible; alter it back and start the job again, and they are committed"
        )


def _stage(committable: PostgresCommittable) -> str:
    return quoted(committable.place, committable.stage)

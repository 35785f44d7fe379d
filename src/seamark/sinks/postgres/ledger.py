"""The ledger: a table beside the target, with a row for each stage, and every statement on it.

``_seamark_ledger`` holds each stage's outcome:
- ``staged``: its rows lie in the stage table; one transaction committed them and this row;
- ``committed``: written in the transaction that moved the rows, so it proves them visible;
- ``aborted``: a late commit finds it and fails.

A transaction ending a stage holds the stage's row locked.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from seamark.contracts.sink import SinkContext
from seamark.sinks.internal.columns import in_double_quotes as quoted
from seamark.sinks.internal.outcomes import LEDGER_EPOCHS
from seamark.sinks.postgres.committable import PostgresCommittable

NAME = "_seamark_ledger"

_COLUMNS = "handle, job_id, sink_uid, generation, epoch, rows, place, stage, target, keys, outcome"
_CREATE = """
CREATE TABLE IF NOT EXISTS {ledger} (
    handle text PRIMARY KEY, job_id text NOT NULL, sink_uid text NOT NULL,
    generation bigint NOT NULL, epoch bigint NOT NULL, rows bigint NOT NULL,
    place text NOT NULL, stage text NOT NULL, target text NOT NULL, keys text[] NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('staged', 'committed', 'aborted'))
);
CREATE INDEX IF NOT EXISTS {index} ON {ledger} (job_id, sink_uid, epoch)
"""


def create(connection: Any, schema: str) -> None:
    """Create the ledger of a schema, if it is missing. Called inside a transaction."""
    # Two concurrent IF NOT EXISTS can fail; one at a time cannot.
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('seamark ledger'))")
    ledger = connection.execute("SELECT to_regclass(%s)", [_ledger(schema)]).fetchone()[0]
    if ledger is None:
        connection.execute(_CREATE.format(ledger=_ledger(schema), index=quoted(NAME + "_by_epoch")))


def is_bound(connection: Any, schema: str) -> bool:
    """Whether row policies bind this user on the ledger."""
    asked = connection.execute("SELECT row_security_active(%s)", [_ledger(schema)])
    return bool(asked.fetchone()[0])


def outcomes(connection: Any, schema: str, handles: Sequence[str]) -> dict[str, str]:
    """Lock the rows of these handles, in one order for all callers, and return their outcomes."""
    rows = connection.execute(
        f"SELECT handle, outcome FROM {_ledger(schema)} WHERE handle = ANY (%s) "
        "ORDER BY handle FOR UPDATE",
        [list(handles)],
    )
    return dict(rows.fetchall())


def record(connection: Any, committable: PostgresCommittable, outcome: str) -> None:
    """Insert or change the row of one stage."""
    c = committable
    connection.execute(
        f"INSERT INTO {_ledger(c.place)} ({_COLUMNS}) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT (handle) DO UPDATE SET outcome = excluded.outcome",
        [c.handle, c.job_id, c.sink_uid, c.generation, c.epoch, c.rows, c.place, c.stage, c.target,
         list(c.keys), outcome],
    )  # fmt: skip


def forget(connection: Any, committables: Sequence[PostgresCommittable]) -> None:
    """Delete the rows too old for any driver to ask for."""
    newest = {(c.place, c.job_id, c.sink_uid): c.epoch for c in committables}
    for (place, job_id, sink_uid), epoch in newest.items():
        connection.execute(
            f"DELETE FROM {_ledger(place)} WHERE job_id = %s AND sink_uid = %s AND epoch < %s "
            "AND outcome <> 'staged'",
            [job_id, sink_uid, epoch - LEDGER_EPOCHS],
        )


def staged(connection: Any, context: SinkContext) -> Iterator[PostgresCommittable]:
    """Yield the stages of one job's sink not ended yet, in every schema."""
    schemas = connection.execute(
        "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relname = %s AND c.relkind = 'r' AND has_table_privilege(c.oid, 'SELECT')",
        [NAME],
    ).fetchall()
    for (schema,) in schemas:
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM {_ledger(schema)} "
            "WHERE job_id = %s AND sink_uid = %s AND outcome = 'staged'",
            [context.job_id, context.sink_uid],
        ).fetchall()
        for handle, job, uid, generation, epoch, count, place, stage, target, keys, _ in rows:
            yield PostgresCommittable(
                handle, job, uid, generation, epoch, count,
                place=place, stage=stage, target=target, keys=tuple(keys),
            )  # fmt: skip


def _ledger(schema: str) -> str:
    return quoted(schema, NAME)

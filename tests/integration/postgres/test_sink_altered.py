"""A table altered while the job runs: no row is rounded or read as another type. It is refused with
its reason, and takes the rows whole once the table is altered back; a wider type takes them as is.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError, PreflightError, WriteRefusedError
from seamark.model.schema import Column, Schema
from seamark.sinks.postgres.table import describe
from seamark.sinks.postgres.types import keeps
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer

UTC = dt.timezone.utc
DONE = [CommitOutcome.COMMITTED]
SCHEMA: Schema = (
    Column("id", "bigint"), Column("amount", "decimal(10,2)"), Column("at", "timestamp"),
    Column("name", "string"),
)  # fmt: skip
ROW = (2**53 + 1, Decimal("1.25"), dt.datetime(2026, 3, 29, 1, 30, 0, 123456, UTC), "a")
ROWS = pa.record_batch(
    {
        "id": [ROW[0]],
        "amount": pa.array([ROW[1]], pa.decimal128(10, 2)),
        "at": pa.array([ROW[2]], pa.timestamp("us", "UTC")),
        "name": [ROW[3]],
    }
)
HARMFUL = {
    "fewer digits": ("amount", "numeric(10,1)", "numeric(10,2)"),
    "whole numbers": ("amount", "bigint", "numeric(10,2)"),
    "floating point": ("id", "float8", "bigint"),
    "without a zone": ("at", "timestamp", "timestamptz"),
    "whole seconds": ("at", "timestamptz(0)", "timestamptz"),
}


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as schema:
        postgres.execute(
            f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, amount numeric(10,2), "
            "at timestamptz, name text)"
        )
        yield schema


def started(sink: Any) -> Any:
    committer = sink.create_committer(kit.driver(schema=SCHEMA))
    committer.preflight()
    return committer


def alter(server: PostgresServer, schema: str, column: str, kind: str) -> None:
    server.execute(f"ALTER TABLE {schema}.orders ALTER COLUMN {column} TYPE {kind}")


@pytest.mark.parametrize("mode", kit.MODES)
@pytest.mark.parametrize("how", HARMFUL)
def test_rows_of_an_altered_table_are_refused_whole(
    postgres: PostgresServer, schema: str, mode: str, how: str
) -> None:
    column, kind, back = HARMFUL[how]
    sink = kit.sink_on(postgres, schema, mode)
    committer = started(sink)
    alter(postgres, schema, column, kind)
    with pytest.raises(WriteRefusedError, match=rf"altered while the job ran: column '{column}'"):
        kit.write(sink, kit.attempt(), ROWS)
    writer = sink.create_selective_writer(kit.attempt())
    with pytest.raises(WriteRefusedError, match=rf"altered while the job ran: column '{column}'"):
        writer.write_accepted(ROWS)
    writer.abort()
    alter(postgres, schema, column, back)
    assert list(committer.commit(kit.write(sink, kit.attempt(), ROWS))) == DONE
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == [ROW]


@pytest.mark.parametrize("mode", ["staged", "upsert"])
@pytest.mark.parametrize("how", HARMFUL)
def test_staged_rows_wait_until_the_table_is_altered_back(
    postgres: PostgresServer, schema: str, mode: str, how: str
) -> None:
    column, kind, back = HARMFUL[how]
    sink = kit.sink_on(postgres, schema, mode)
    committer = started(sink)
    staged = kit.write(sink, kit.attempt(), ROWS)
    alter(postgres, schema, column, kind)
    with pytest.raises(CommitFailedError, match=rf"altered while the job ran.*column '{column}'"):
        committer.commit(staged)
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == []
    alter(postgres, schema, column, back)
    assert list(committer.commit(staged)) == DONE
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == [ROW]


@pytest.mark.parametrize("mode", ["staged", "upsert"])
def test_a_wider_table_takes_what_was_staged_before(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    sink = kit.sink_on(postgres, schema, mode)
    committer = started(sink)
    staged = kit.write(sink, kit.attempt(), ROWS)
    alter(postgres, schema, "amount", "numeric(20,4)")
    alter(postgres, schema, "id", "numeric")
    postgres.execute(f"ALTER TABLE {schema}.orders ADD note text DEFAULT 'new'")
    assert list(committer.commit(staged)) == DONE
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == [(*ROW, "new")]


def test_a_key_that_takes_two_texts_for_one_is_not_merged_by(
    postgres: PostgresServer, schema: str
) -> None:
    """A server may lack ICU: the mark of its collation does."""
    postgres.execute(f"ALTER TABLE {schema}.orders DROP CONSTRAINT orders_pkey, ADD UNIQUE (name)")
    sink = kit.sink_on(postgres, schema, "upsert", keys=["name"])
    committer = started(sink)
    staged = kit.write(sink, kit.attempt(), ROWS)
    postgres.execute(f"CREATE COLLATION {schema}.anycase (provider = libc, locale = 'C')")
    alter(postgres, schema, "name", f"text COLLATE {schema}.anycase")
    postgres.execute(
        "UPDATE pg_collation SET collisdeterministic = false WHERE "
        f"collname = 'anycase' AND collnamespace = '{schema}'::regnamespace"
    )
    with pytest.raises(CommitFailedError, match=r"no unique index that compares every byte"):
        committer.commit(staged)
    alter(postgres, schema, "name", 'text COLLATE "default"')
    assert list(committer.commit(staged)) == DONE
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == [ROW]


def test_no_delete_passes_over_a_row_that_a_policy_hides(
    postgres: PostgresServer, schema: str
) -> None:
    postgres.execute("CREATE ROLE hidden LOGIN")
    postgres.execute(f"GRANT ALL ON SCHEMA {schema} TO hidden")
    postgres.execute(f"GRANT ALL ON {schema}.orders TO hidden")
    sink = kit.sink_on(postgres, schema, "changes", url=postgres.url("hidden"))
    try:
        committer = started(sink)
        inserted, deleted = (
            ROWS.append_column("op", pa.array([op])) for op in ("insert", "delete")
        )
        assert list(committer.commit(kit.write(sink, kit.attempt(), inserted))) == DONE
        postgres.execute(f"CREATE POLICY others ON {schema}.orders USING (name <> 'a')")
        postgres.execute(f"ALTER TABLE {schema}.orders ENABLE ROW LEVEL SECURITY")
        staged = kit.write(sink, kit.attempt(1), deleted)
        with pytest.raises(CommitFailedError, match="row-level security policy"):
            committer.commit(staged)
        postgres.execute(f"ALTER TABLE {schema}.orders DISABLE ROW LEVEL SECURITY")
        assert list(committer.commit(staged)) == DONE
        assert postgres.execute(f"SELECT * FROM {schema}.orders") == []
        committer.close()
    finally:
        postgres.execute("DROP OWNED BY hidden CASCADE")
        postgres.execute("DROP ROLE hidden")


def test_a_column_with_a_collation_of_its_own_is_not_altered(
    postgres: PostgresServer, schema: str
) -> None:
    alter(postgres, schema, "name", 'text COLLATE "C"')
    postgres.execute(f"ALTER TABLE {schema}.orders DROP CONSTRAINT orders_pkey, ADD UNIQUE (name)")
    sink = kit.sink_on(postgres, schema, "upsert", keys=["name"])
    committer = started(sink)
    for epoch in (0, 1):
        assert list(committer.commit(kit.write(sink, kit.attempt(epoch), ROWS))) == DONE
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == [ROW]


KEPT = {
    ("varchar(5)", "varchar(9)"): True,
    ("varchar(5)", "text"): True,
    ("text", "varchar(5)"): False,  # it would cut blanks off
    ("text", "char(5)"): False,
    ("text", "name"): False,
    ("int", "bigint"): True,
    ("int[]", "bigint[]"): True,
    ("numeric(10,2)[]", "numeric(10,1)[]"): False,
    ("numeric(10,2)", "numeric"): True,
    ("numeric", "numeric(10,2)"): False,
    ("real", "float8"): True,
    ("float8", "real"): False,
    ("jsonb", "text"): False,
    ("bytea", "bytea"): True,
}


def test_which_types_keep_what_was_staged(postgres: PostgresServer, schema: str) -> None:
    kinds = sorted({kind for pair in KEPT for kind in pair})
    columns = ", ".join(f'"{kind}" {kind}' for kind in kinds)
    postgres.execute(f"CREATE TABLE {schema}.kinds ({columns})")
    with postgres.connect() as connection:
        table = describe(connection, f"{schema}.kinds")
    assert table is not None
    types = {column.name: column.type for column in table.columns}
    assert {pair: keeps(types[pair[0]], types[pair[1]]) for pair in KEPT} == KEPT


def test_a_child_has_older_rows_of_the_keys(postgres: PostgresServer, schema: str) -> None:
    """ON CONFLICT does not see the rows of tables that inherit: both would be there."""
    sink = kit.sink_on(postgres, schema, "upsert")
    committer = started(sink)
    staged = kit.write(sink, kit.attempt(), ROWS)
    postgres.execute(f"CREATE TABLE {schema}.child () INHERITS ({schema}.orders)")
    postgres.execute(f"INSERT INTO {schema}.child VALUES ({ROW[0]}, 1, now(), 'old')")
    with pytest.raises(PreflightError, match=r"has children, .* NO INHERIT"):
        started(sink)
    with pytest.raises(CommitFailedError, match=r"has children, .* NO INHERIT"):
        committer.commit(staged)
    started(kit.sink_on(postgres, schema, "staged"))
    postgres.execute(f"ALTER TABLE {schema}.child NO INHERIT {schema}.orders")
    assert list(committer.commit(staged)) == DONE
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == [ROW]


def test_a_second_index_on_the_keys_is_added(postgres: PostgresServer, schema: str) -> None:
    """By one that takes two texts for one, `A` would replace `a`; the columns are as they were."""
    postgres.execute(f"ALTER TABLE {schema}.orders DROP CONSTRAINT orders_pkey, ADD UNIQUE (name)")
    sink = kit.sink_on(postgres, schema, "upsert", keys=["name"])
    committer = started(sink)
    staged = kit.write(sink, kit.attempt(), ROWS)
    postgres.execute(f"CREATE COLLATION {schema}.anycase (provider = libc, locale = 'C')")
    postgres.execute(
        f"CREATE UNIQUE INDEX second ON {schema}.orders (name COLLATE {schema}.anycase)"
    )
    postgres.execute(
        "UPDATE pg_collation SET collisdeterministic = false WHERE "
        f"collname = 'anycase' AND collnamespace = '{schema}'::regnamespace"
    )
    with pytest.raises(CommitFailedError, match="a second unique index on the keys"):
        committer.commit(staged)
    postgres.execute(f"DROP INDEX {schema}.second")
    assert list(committer.commit(staged)) == DONE
    assert postgres.execute(f"SELECT * FROM {schema}.orders") == [ROW]


@pytest.mark.parametrize(
    ("mode", "how"),  # no unique index covers a foreign partition
    [("prepared", "foreign"), ("staged", "foreign"), *((mode, "unlogged") for mode in kit.MODES)],
)
def test_a_partition_that_keeps_no_commit_is_added(
    postgres: PostgresServer, schema: str, mode: str, how: str
) -> None:
    """Rows would go to another server outside of the transaction, or be gone after a crash."""
    postgres.execute(f"DROP TABLE {schema}.orders")
    postgres.execute(
        f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, amount numeric(10,2), "
        "at timestamptz, name text) PARTITION BY LIST (id)"
    )
    postgres.execute(f"CREATE TABLE {schema}.rest PARTITION OF {schema}.orders DEFAULT")
    sink = kit.sink_on(postgres, schema, mode)
    committer = started(sink)
    staged = kit.write(sink, kit.attempt(), ROWS) if mode != "prepared" else []
    postgres.execute("CREATE FOREIGN DATA WRAPPER w")
    try:
        postgres.execute("CREATE SERVER elsewhere FOREIGN DATA WRAPPER w")
        if how == "foreign":
            postgres.execute(f"ALTER TABLE {schema}.orders DROP CONSTRAINT orders_pkey")
            made, server = "CREATE FOREIGN TABLE", "SERVER elsewhere"
        else:
            made, server = "CREATE UNLOGGED TABLE", ""
        postgres.execute(
            f"{made} {schema}.new PARTITION OF {schema}.orders FOR VALUES IN (1) {server}"
        )
        with pytest.raises(
            WriteRefusedError, match=rf"{schema}.new is a foreign table or UNLOGGED"
        ):
            kit.write(sink, kit.attempt(1), ROWS)
        if staged:
            with pytest.raises(CommitFailedError, match=rf"{schema}.new is a foreign table or UNL"):
                committer.commit(staged)
        postgres.execute(f"ALTER TABLE {schema}.orders DETACH PARTITION {schema}.new")
        staged = staged or kit.write(sink, kit.attempt(2), ROWS)
        assert list(committer.commit(staged)) == DONE
        assert postgres.execute(f"SELECT * FROM {schema}.orders") == [ROW]
    finally:
        postgres.execute("DROP FOREIGN DATA WRAPPER w CASCADE")

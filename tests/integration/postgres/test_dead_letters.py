"""Rows refused by PostgreSQL, and the fate of them and their neighbours.

How: a real server and tables with each kind of constraint; writers with rows set aside. The suite
for such writers is in `test_sink_conformance.py`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError, WriteRefusedError
from seamark.model.findings import FindingCode
from seamark.model.schema import Column
from seamark.sinks.postgres import PostgresSink, preflight
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as name:
        yield name


def selective(sink: PostgresSink, epoch: int = 0) -> Any:
    committer = sink.create_committer(kit.driver(schema=()))
    committer.preflight()
    committer.close()
    return sink.create_selective_writer(kit.attempt(epoch))


def commit(sink: PostgresSink, writer: Any) -> list[CommitOutcome]:
    committer = sink.create_committer(kit.driver())
    try:
        return list(committer.commit(writer.prepare_commit()))
    finally:
        committer.close()


KINDS = {  # column or constraint: its type, a refused value, the SQLSTATE
    "length": ("varchar(3)", "four", "22001"),
    "number": ("numeric(3, 1)", "1234", "22003"),
    "nul": ("text", "a\0b", "22021"),
    "uuid": ("uuid", "no-uuid", "hexadecimal"),
    "json": ("jsonb", "{", "22P02"),
    "enumeration": ("colour", "blue", "22P02"),
    "domain": ("small_text", "large", "23514"),
    "name": ("name", "n" * 64, "63 bytes"),
    "not null": ("text NOT NULL", None, "23502"),
    "check": ("text CHECK (value <> 'bad')", "bad", "23514"),
}
GOOD = {
    "uuid": "00000000-0000-0000-0000-000000000000", "json": "{}", "enumeration": "red",
    "number": "1.5", "not null": "x", "domain": "s",
}  # fmt: skip


@pytest.mark.parametrize("mode", ["prepared", "staged"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_value_is_set_aside(
    postgres: PostgresServer, schema: str, mode: str, kind: str
) -> None:
    type_, bad, state = KINDS[kind]
    postgres.execute(f"CREATE TYPE {schema}.colour AS ENUM ('red')")
    postgres.execute(f"CREATE DOMAIN {schema}.small_text AS text CHECK (length(value) < 3)")
    type_ = re.sub("colour|small_text", rf"{schema}.\g<0>", type_)
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, value {type_})")
    sink = kit.sink_on(postgres, schema, mode)
    writer = selective(sink)
    values = [GOOD.get(kind, "ok")] * 30
    values[17] = bad  # type: ignore[call-overload]
    column = pa.array(values, pa.string())
    if kind == "number":
        column = column.cast(pa.decimal128(6, 1))
    batch = pa.record_batch({"id": range(30), "value": column})
    (refused,) = writer.write_accepted(batch)
    assert refused.index == 17
    assert state in refused.reason
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == [i for i in range(30) if i != 17]


def test_keys_and_triggers_refuse_in_prepared_mode(postgres: PostgresServer, schema: str) -> None:
    postgres.execute(
        f"CREATE TABLE {schema}.parents (id bigint PRIMARY KEY); "
        f"INSERT INTO {schema}.parents SELECT generate_series(0, 19); "
        f"CREATE TABLE {schema}.orders (id bigint REFERENCES {schema}.parents, "
        "text text UNIQUE DEFERRABLE INITIALLY DEFERRED); "
        f"INSERT INTO {schema}.orders VALUES (0, 'row 5'); "
        f"CREATE FUNCTION {schema}.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF new.id = 7 THEN RAISE EXCEPTION 'not seven'; END IF; RETURN new; END $$; "
        f"CREATE TRIGGER look BEFORE INSERT ON {schema}.orders "
        f"FOR EACH ROW EXECUTE FUNCTION {schema}.look()"
    )
    sink = kit.sink_on(postgres, schema)
    writer = selective(sink)
    refused = writer.write_accepted(kit.numbers([1, 5, 7, 8, 99, 8]))
    reasons = {row.index: row.reason for row in refused}
    assert list(reasons) == [1, 2, 4, 5]
    assert "23505" in reasons[1]  # in the table, by a constraint checked at the end
    assert "not seven" in reasons[2]
    assert "23503" in reasons[4]
    assert "23505" in reasons[5]  # earlier in the same batch
    assert [row.index for row in writer.write_accepted(kit.numbers([1, 9]))] == [0]
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == [0, 1, 8, 9]


def test_a_key_that_is_in_the_table_still_stops_a_staged_commit(
    postgres: PostgresServer, schema: str
) -> None:
    """The documented limit: staged rows meet the table's keys after the decision."""
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text text)")
    postgres.execute(f"INSERT INTO {schema}.orders VALUES (1, 'was here')")
    sink = kit.sink_on(postgres, schema, "staged")
    writer = selective(sink)
    assert writer.write_accepted(kit.numbers([1])) == []
    with pytest.raises(CommitFailedError, match="23505"):
        commit(sink, writer)


def test_what_no_row_is_to_blame_for_fails_the_attempt(
    postgres: PostgresServer, schema: str
) -> None:
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text text)")
    writer = selective(kit.sink_on(postgres, schema))
    assert writer.write_accepted(kit.numbers([1])) == []
    # The writer's lock keeps others from it.
    writer._connection.execute(f"DROP TABLE {schema}.orders")
    with pytest.raises(WriteRefusedError, match="42P01"):
        writer.write_accepted(kit.numbers([2]))
    writer.abort()
    assert postgres.execute(f"SELECT count(*) FROM {schema}.orders") == [(0,)]


def test_many_bad_rows_among_many(postgres: PostgresServer, schema: str) -> None:
    """2,000 rows, every third bad: each is found, in seconds."""
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint CHECK (id % 3 <> 0), text text)")
    sink = kit.sink_on(postgres, schema)
    writer = selective(sink)
    begun = time.monotonic()
    refused = writer.write_accepted(kit.numbers(range(2000)))
    assert time.monotonic() - begun < 60
    assert [row.index for row in refused] == [i for i in range(2000) if i % 3 == 0]
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == [i for i in range(2000) if i % 3]


LONG = random.Random(1).randbytes(3000).hex()
"""Nothing makes it short enough for an index."""
LATE = {  # what meets rows after the decision: statements, a refused text, the SQLSTATE
    "index": ("CREATE INDEX ON {t} (text)", LONG, "54000"),
    "unique": ("ALTER TABLE {t} ADD UNIQUE (text, id)", LONG, "54000"),
    "included": ("CREATE INDEX ON {t} (id) INCLUDE (text)", LONG, "54000"),
    "ordered": (
        'CREATE INDEX ON {t} (lower(text) COLLATE "C" text_pattern_ops DESC)',
        LONG,
        "54000",
    ),
    "partial": ("CREATE INDEX ON {t} (text) WHERE id > 16", LONG, "54000"),
    "expression": ("CREATE INDEX ON {t} ((text::int))", "x", "22P02"),
    "gin": ("CREATE INDEX ON {t} USING gin ((text::jsonb))", "{", "22P02"),
    "condition": ("CREATE INDEX ON {t} (id) WHERE text::int > 5", "x", "22P02"),
    "generated": ("ALTER TABLE {t} ADD n int GENERATED ALWAYS AS (text::int) STORED", "x", "22P02"),
    "required": (
        "ALTER TABLE {t} ADD n text GENERATED ALWAYS AS (nullif(text, 'x')) STORED NOT NULL, "
        "ADD o text DEFAULT 'o', ADD m text GENERATED ALWAYS AS ('1'::text || o) STORED",
        "x",
        "23514",
    ),
    "checked": (
        "ALTER TABLE {t} ADD n text GENERATED ALWAYS AS (lower(text)) STORED CHECK (n <> 'x')",
        "X",
        "23514",
    ),
    "too long": (
        "ALTER TABLE {t} ADD n varchar(5000) GENERATED ALWAYS AS (text) STORED; "
        "CREATE INDEX ON {t} (n)",
        "y" * 5001,
        "22001",
    ),
    "long": (
        "ALTER TABLE {t} ADD n text GENERATED ALWAYS AS (text) STORED; CREATE INDEX ON {t} (n, id)",
        LONG,
        "54000",
    ),
    "virtual": (
        "ALTER TABLE {t} ADD n text GENERATED ALWAYS AS (nullif(text, 'x')) NOT NULL, "
        "ADD m int GENERATED ALWAYS AS (text::int)",  # nobody asks for it
        "x",
        "23514",
    ),
    "both": ("CREATE INDEX ON {t} ((text::int)) WHERE id < 20", "x", "22P02"),
}


@pytest.mark.parametrize("mode", ["staged", "upsert", "changes"])
@pytest.mark.parametrize("kind", LATE)
def test_an_index_refuses_before_the_decision(
    postgres: PostgresServer, schema: str, mode: str, kind: str
) -> None:
    make, bad, state = LATE[kind]
    if kind == "virtual" and postgres.execute("SHOW server_version_num") < [("180000",)]:
        pytest.skip("PostgreSQL 18 has virtual columns")
    key = "PRIMARY KEY" if mode != "staged" else ""
    postgres.execute(f'CREATE TABLE {schema}.orders (id bigint {key}, text text, "O""dd" text)')
    postgres.execute(make.format(t=f"{schema}.orders"))
    sink = kit.sink_on(postgres, schema, mode)
    writer = selective(sink)
    texts = ["1"] * 30
    texts[17] = bad
    texts[18] = "1" if "::" in make else "x" * 5000  # short enough in the index
    batch = pa.record_batch({"id": range(30), "text": texts})
    if mode == "changes":
        ops = ["delete" if number % 5 == 0 else "insert" for number in range(30)]
        batch = batch.append_column("op", pa.array(ops))
    (refused,) = writer.write_accepted(batch)
    assert refused.index == 17
    assert state in refused.reason
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    kept = [i for i in range(30) if i != 17 and (mode != "changes" or i % 5)]
    assert kit.visible(postgres, schema) == kept


@pytest.mark.parametrize("make", ["(other)", "(text) WHERE other > 'a'", "((text || other))"])
def test_an_index_of_another_column_is_not_taken_over(
    postgres: PostgresServer, schema: str, make: str
) -> None:
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, text text, other text)")
    postgres.execute(f"CREATE INDEX ON {schema}.orders {make}")
    sink = kit.sink_on(postgres, schema, "staged")
    writer = selective(sink)
    assert writer.write_accepted(kit.numbers([1, 2])) == []
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]


PARTITIONS = {  # how the table and its partitions are made, the rows of 0 to 9 that have a place
    "range": ("RANGE (id)", ["FROM (0) TO (3)", "FROM (3) TO (5)", "FROM (8) TO (10)"], "0123489"),
    "list": ("LIST (id)", ["IN (1, 2)", "IN (7)"], "127"),
    "none": ("RANGE (id)", [], ""),
    "default": ("LIST (id)", ["IN (1, 2)", None], "0123456789"),
    "expression": ("LIST ((id % 4))", ["IN (1)", "IN (2)"], "12569"),
    "hash": ("HASH (id)", ["WITH (modulus 2, remainder 0)", "WITH (modulus 2, remainder 1)"],
             "0123456789"),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["staged", "upsert", "changes"])
@pytest.mark.parametrize("kind", PARTITIONS)
def test_a_row_without_a_partition_is_refused_before_the_decision(
    postgres: PostgresServer, schema: str, mode: str, kind: str
) -> None:
    by, bounds, placed = PARTITIONS[kind]
    if mode != "staged" and kind == "expression":
        pytest.skip("no unique index is on such a table")
    key = "PRIMARY KEY" if mode != "staged" else ""
    orders = f"{schema}.orders"
    postgres.execute(f"CREATE TABLE {orders} (id bigint {key}, text text) PARTITION BY {by}")
    for number, bound in enumerate(bounds):
        where = "DEFAULT" if bound is None else f"FOR VALUES {bound}"
        postgres.execute(f"CREATE TABLE {orders}{number} PARTITION OF {orders} {where}")
    sink = kit.sink_on(postgres, schema, mode)
    writer = selective(sink)
    rows = kit.inserts(range(10)) if mode == "changes" else kit.numbers(range(10))
    refused = writer.write_accepted(rows)
    assert [row.index for row in refused] == [i for i in range(10) if str(i) not in placed]
    assert all("a partition takes it" in row.reason for row in refused)
    if placed:
        assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == [int(i) for i in placed]


def test_partitions_within_partitions(postgres: PostgresServer, schema: str) -> None:
    """A list within a range, and hashes: one set of them whole, another not."""
    orders = f"{schema}.orders"
    postgres.execute(
        f"CREATE TABLE {orders} (id bigint, text text) PARTITION BY RANGE (id); "
        f"CREATE TABLE {orders}0 (text text, id bigint) PARTITION BY LIST (text); "
        f"ALTER TABLE {orders} ATTACH PARTITION {orders}0 FOR VALUES FROM (0) TO (10); "
        f"CREATE TABLE {orders}00 PARTITION OF {orders}0 FOR VALUES IN ('row 1', 'row 2'); "
        f"CREATE TABLE {orders}1 PARTITION OF {orders} FOR VALUES FROM (10) TO (20) "
        "PARTITION BY HASH (id); "
        f"CREATE TABLE {orders}10 PARTITION OF {orders}1 FOR VALUES WITH (modulus 2, remainder 0); "
        f"CREATE TABLE {orders}11 PARTITION OF {orders}1 FOR VALUES WITH (modulus 4, remainder 1); "
        f"CREATE TABLE {orders}12 PARTITION OF {orders}1 FOR VALUES WITH (modulus 4, remainder 3); "
        f"CREATE TABLE {orders}2 PARTITION OF {orders} DEFAULT PARTITION BY HASH (id); "
        f"CREATE TABLE {orders}20 PARTITION OF {orders}2 FOR VALUES WITH (modulus 2, remainder 0)"
    )
    sink = kit.sink_on(postgres, schema, "staged")
    writer = selective(sink)
    writer.write_accepted(kit.numbers(range(40)))
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    found = kit.visible(postgres, schema)
    assert [number for number in found if number < 20] == [1, 2, *range(10, 20)]
    assert 0 < len([number for number in found if number >= 20]) < 20


@pytest.mark.parametrize("op", ["insert", "delete"])
def test_a_delete_needs_no_value_of_a_domain_that_is_not_null(
    postgres: PostgresServer, schema: str, op: str
) -> None:
    postgres.execute(
        f"CREATE DOMAIN {schema}.given AS varchar(9) NOT NULL CHECK (value <> 'bad'); "
        f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text {schema}.given); "
        f"INSERT INTO {schema}.orders VALUES (1, 'old'), (2, 'old')"
    )
    sink = kit.sink_on(postgres, schema, "changes")
    writer = selective(sink)
    rows = {"id": [1, 3, 4, 5], "text": [None, None, "bad", "good"], "op": [op, *["insert"] * 3]}
    refused = {row.index: row.reason for row in writer.write_accepted(pa.record_batch(rows))}
    assert list(refused) == ([1, 2] if op == "delete" else [0, 1, 2])
    assert "23502" in refused[1]
    assert "23514" in refused[2]
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == ([2, 5] if op == "delete" else [1, 2, 5])


def test_what_meets_rows_late_is_told_at_the_start(postgres: PostgresServer, schema: str) -> None:
    postgres.execute(
        f"CREATE TABLE {schema}.parents (id bigint PRIMARY KEY); "
        f"CREATE TABLE {schema}.orders (n bigserial PRIMARY KEY, id bigint UNIQUE, "
        f"text text, low text GENERATED ALWAYS AS (lower(text)) STORED UNIQUE, "
        f"CONSTRAINT parent FOREIGN KEY (id) REFERENCES {schema}.parents); "
        f"CREATE FUNCTION {schema}.look() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN new; END $$; "
        f"CREATE TRIGGER look BEFORE INSERT ON {schema}.orders "
        f"FOR EACH ROW EXECUTE FUNCTION {schema}.look()"
    )
    for mode, also in (("prepared", None), ("staged", "unique or exclusion index orders_id_key"),
                       ("upsert", "")):  # fmt: skip
        sink = kit.sink_on(postgres, schema, mode)
        found = [f for f in preflight.look(sink, kit.driver(), "it", start=True)
                 if f.code is FindingCode.SV009]  # fmt: skip
        assert len(found) == (also is not None)
        if found:
            low = "unique or exclusion index orders_low_key"
            named = ", ".join(filter(None, ["foreign key parent", "trigger look", also, low]))
            assert f"a row that {named} of " in found[0].found


@pytest.mark.parametrize("mode", ["staged", "upsert", "changes"])
def test_a_stage_compares_by_the_tables_collations(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    """The database's own knows no capitals beyond ASCII."""
    key = "PRIMARY KEY" if mode != "staged" else ""
    postgres.execute(
        f"CREATE DOMAIN {schema}.given AS text COLLATE pg_c_utf8 NOT NULL; "
        f"CREATE TABLE {schema}.orders (id bigint {key}, text text COLLATE pg_c_utf8 "
        f"CHECK (upper(text) <> 'Ä'), other {schema}.given CHECK (upper(other) <> 'Ä'))"
    )
    sink = kit.sink_on(postgres, schema, mode)
    shape = (*kit.SCHEMA, Column("other", "string"))
    shape = (*shape, Column("op", "string")) if mode == "changes" else shape
    sink.create_committer(kit.driver(schema=shape)).preflight()
    writer = sink.create_selective_writer(kit.attempt(0))
    rows = {"id": [1, 2, 3], "text": ["ä", "ö", "ö"], "other": ["ö", "ä", "ö"]}
    batch = pa.record_batch({**rows, "op": ["insert"] * 3} if mode == "changes" else rows)
    assert [row.index for row in writer.write_accepted(batch)] == [0, 1]
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == [3]


def test_a_check_that_is_not_enforced_refuses_nothing(
    postgres: PostgresServer, schema: str
) -> None:
    if postgres.execute("SELECT current_setting('server_version_num')::int < 180000") == [(True,)]:
        pytest.skip("PostgreSQL 18 is the first with such CHECKs")
    postgres.execute(
        f"CREATE TABLE {schema}.orders (id bigint, text text CHECK (text <> 'row 1') NOT ENFORCED)"
    )
    sink = kit.sink_on(postgres, schema, "staged")
    writer = selective(sink)
    assert writer.write_accepted(kit.numbers([1, 2])) == []
    assert commit(sink, writer) == [CommitOutcome.COMMITTED]
    assert kit.visible(postgres, schema) == [1, 2]

"""Rows refused by PostgreSQL, and the fate of them and their neighbours.

How: a real server and tables with each kind of constraint; writers with rows set aside. The suite
for such writers is in `test_sink_conformance.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import CommitFailedError, WriteRefusedError
from seamark.sinks.postgres import PostgresSink
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

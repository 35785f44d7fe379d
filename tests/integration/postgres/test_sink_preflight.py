"""The obstacles to a job's start, and their errors; and no secret is in any text.

How: a real server, with tables, roles and privileges set up by hand.
"""

from __future__ import annotations

import dataclasses
import logging
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest

from seamark.model.errors import CommitFailedError, PreCommitError, PreflightError
from seamark.model.schema import Column
from seamark.sinks.postgres import PostgresSink
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer

_CITEXT = (
    "CREATE TYPE citext",
    "CREATE FUNCTION citextin(cstring) RETURNS citext LANGUAGE internal STRICT AS 'textin'",
    "CREATE FUNCTION citextout(citext) RETURNS cstring LANGUAGE internal STRICT AS 'textout'",
    "CREATE TYPE citext (INPUT = citextin, OUTPUT = citextout, LIKE = text, COLLATABLE)",
    "CREATE CAST (citext AS text) WITHOUT FUNCTION AS IMPLICIT",
)


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    with kit.fresh_schema(postgres) as name:
        yield name


def refused(sink: PostgresSink, shape: tuple[Column, ...] = kit.SCHEMA) -> str:
    committer = sink.create_committer(kit.driver(schema=shape))
    with pytest.raises(PreflightError) as caught:
        committer.preflight()
    committer.close()
    return str(caught.value)


@pytest.mark.parametrize(
    ("columns", "shape", "said"),
    [
        ("id bigint", {}, ["no column 'text' (it has id)", 'ADD COLUMN "text" text']),
        (
            "id int, text text", {},
            ["column 'id' has type integer and the DataFrame's bigint", "bigint or numeric"],
        ),
        ("id bigint, text bigint", {}, ["type bigint and the DataFrame's string"]),
        (
            "id bigint, text text, at timestamp", {"at": "timestamp"},
            ["timestamp without time zone", "goes into timestamp with time zone"],
        ),
        (
            "id bigint, text text, tags bigint[]", {"tags": "array<string>"},
            ["bigint[]", "text[] or varchar[]"],
        ),
        ("id bigint, text text, tags text", {"tags": "array<string>"}, ["text[] or varchar[]"]),
        (
            "id bigint, text text, who text NOT NULL", {},
            ["column 'who' is NOT NULL without a default"],
        ),
        (
            "id bigint, text text GENERATED ALWAYS AS ('x') STORED", {},
            ["'text' is computed by the table"],
        ),
        ("id int, other text", {}, ["'id' has type integer", "; it has no column 'text'"]),
        (
            "id bigint, text text, v numeric(9,2)", {"v": "decimal(38,10)"},
            ["column 'v' has type numeric(9,2)", "numeric with a scale of at least 10"],
        ),
        (
            "id bigint, text text, v small", {"v": "decimal(38,10)"},
            ["small and the DataFrame's decimal(38,10)"],
        ),
        (
            "id bigint, text text, v numeric(9,2)[]", {"v": "array<decimal(9,3)>"},
            ["numeric(9,2)[]"],
        ),
        ("id bigint, text text, v smalls", {"v": "array<decimal(9,3)>"}, ["smalls and"]),
        (
            "id bigint, text text, v timestamptz(0)", {"v": "timestamp"},
            ["timestamp(0) with time zone", "goes into timestamp with time zone with 6 digits"],
        ),
        (
            "id bigint, text text, v timestamp(3)", {"v": "timestamp_ntz"},
            ["'v' has type timestamp(3)"],
        ),
        (
            "id bigint, text text, v timestamp(5)[]", {"v": "array<timestamp_ntz>"},
            ["timestamp(5) without time zone[]"],
        ),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit(
    postgres: PostgresServer, schema: str, columns: str, shape: dict[str, str], said: list[str]
) -> None:
    postgres.execute(f"CREATE DOMAIN {schema}.small AS numeric(9,2)")
    postgres.execute(f"CREATE DOMAIN {schema}.smalls AS numeric(9,2)[]")
    columns = columns.replace("v small", f"v {schema}.small")
    postgres.execute(f"CREATE TABLE {schema}.orders ({columns})")
    more = tuple(Column(name, type_) for name, type_ in shape.items())
    error = refused(kit.sink_on(postgres, schema), (*kit.SCHEMA, *more))
    for part in ["sink 'orders-out'", f'"{schema}"."orders"', *said]:
        assert part in error


def test_no_table_a_view_and_no_unique_index(postgres: PostgresServer, schema: str) -> None:
    sink = kit.sink_on(postgres, schema, create_table=False)
    upsert = kit.sink_on(postgres, schema, "upsert", create_table=False)
    assert "create_table=True" in refused(sink)
    postgres.execute(f"CREATE VIEW {schema}.orders AS SELECT 1::bigint AS id, 'x'::text AS text")
    assert "is no table" in refused(sink)
    postgres.execute(f"DROP VIEW {schema}.orders")
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, text text)")
    postgres.execute(f"CREATE UNIQUE INDEX ON {schema}.orders (id, text)")
    postgres.execute(f"CREATE UNIQUE INDEX ON {schema}.orders (id) WHERE id > 0")
    assert f'ALTER TABLE "{schema}"."orders" ADD UNIQUE ("id")' in refused(upsert)
    postgres.execute(f'ALTER TABLE {schema}.orders ADD UNIQUE ("id")')
    upsert.create_committer(kit.driver()).preflight()


@pytest.mark.parametrize("keys", [["text"], ["id", "text"]])
@pytest.mark.parametrize("column", ["citext", "text COLLATE {}.anycase", "text"])
def test_keys_that_do_not_compare_every_byte(
    postgres: PostgresServer, schema: str, column: str, keys: list[str]
) -> None:
    """`A` would replace `a`. A server may lack ICU and the extension citext: the mark of the one
    and the name of the other do."""
    for statement in _CITEXT:
        postgres.execute(statement.replace("citext", f"{schema}.citext"))
    postgres.execute(f"CREATE COLLATION {schema}.anycase (provider = libc, locale = 'C')")
    kind = column.format(schema).replace("citext", f"{schema}.citext")
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, text {kind})")
    how = {"text": f"text COLLATE {schema}.anycase", "citext": "text text_ops"}.get(column, "text")
    postgres.execute(f"CREATE UNIQUE INDEX ON {schema}.orders ({how}{', id' * (len(keys) - 1)})")
    upsert = kit.sink_on(postgres, schema, "upsert", keys=keys)
    if column != "citext":
        upsert.create_committer(kit.driver()).preflight()
    postgres.execute(
        "UPDATE pg_collation SET collisdeterministic = false WHERE "
        f"collname = 'anycase' AND collnamespace = '{schema}'::regnamespace"
    )
    error = refused(upsert)
    assert "no unique index that compares every byte" in error
    kit.sink_on(postgres, schema, "staged").create_committer(kit.driver()).preflight()


def test_keys_of_texts_without_case(postgres: PostgresServer, schema: str) -> None:
    for statement in _CITEXT:
        postgres.execute(statement.replace("citext", f"{schema}.citext"))
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, tags {schema}.citext[])")
    postgres.execute(f"CREATE UNIQUE INDEX ON {schema}.orders (tags array_ops)")
    upsert = kit.sink_on(postgres, schema, "upsert", keys=["tags"])
    shape = (Column("id", "bigint"), Column("tags", "array<string>"))
    assert "no unique index that compares every byte" in refused(upsert, shape)


def test_a_second_index_on_the_keys(postgres: PostgresServer, schema: str) -> None:
    """ON CONFLICT goes by all of them: `A` would replace `a`, and a deferrable one is an error."""
    postgres.execute(f"CREATE COLLATION {schema}.anycase (provider = libc, locale = 'C')")
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, text text PRIMARY KEY)")
    how = f"text COLLATE {schema}.anycase"
    postgres.execute(f"CREATE UNIQUE INDEX second ON {schema}.orders ({how})")
    upsert = kit.sink_on(postgres, schema, "upsert", keys=["text"])
    upsert.create_committer(kit.driver()).preflight()
    postgres.execute(
        "UPDATE pg_collation SET collisdeterministic = false WHERE "
        f"collname = 'anycase' AND collnamespace = '{schema}'::regnamespace"
    )
    assert 'a second unique index on the keys ("text") is DEFERRABLE, or' in refused(upsert)
    postgres.execute(f"DROP INDEX {schema}.second")
    postgres.execute(f"ALTER TABLE {schema}.orders ADD UNIQUE (text) DEFERRABLE")
    assert 'a second unique index on the keys ("text") is DEFERRABLE, or' in refused(upsert)


@pytest.mark.parametrize("mode", ["upsert", "changes"])
def test_a_published_table_without_replica_identity(
    postgres: PostgresServer, schema: str, mode: str
) -> None:
    """Refused at the start, and at the commit at once; with one the rows get in."""
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint UNIQUE, text text)")
    sink = kit.sink_on(postgres, schema, mode)
    shape = (*kit.SCHEMA, Column("op", "string")) if mode == "changes" else kit.SCHEMA
    committer = sink.create_committer(kit.driver(schema=shape))
    committer.preflight()
    rows = kit.inserts([1]) if mode == "changes" else kit.numbers([1])
    staged = kit.write(sink, kit.attempt(), rows)
    postgres.execute(f"CREATE PUBLICATION published FOR TABLE {schema}.orders")
    try:
        assert "does not have a replica identity" in refused(sink, shape)
        with pytest.raises(CommitFailedError, match="does not have a replica identity"):
            committer.commit(staged)
        postgres.execute(f"ALTER TABLE {schema}.orders REPLICA IDENTITY FULL")
        committer.preflight()
        assert [outcome.name for outcome in committer.commit(staged)] == ["COMMITTED"]
        assert kit.visible(postgres, schema) == [1]
    finally:
        postgres.execute("DROP PUBLICATION published")


@pytest.mark.parametrize("mode", ["prepared", "staged"])
def test_a_partition_on_another_server(postgres: PostgresServer, schema: str, mode: str) -> None:
    """No two-phase commit covers it."""
    postgres.execute("CREATE FOREIGN DATA WRAPPER w")
    try:
        postgres.execute("CREATE SERVER elsewhere FOREIGN DATA WRAPPER w")
        columns = "id bigint, text text"
        postgres.execute(f"CREATE TABLE {schema}.orders ({columns}) PARTITION BY LIST (id)")
        postgres.execute(
            f"CREATE FOREIGN TABLE {schema}.far PARTITION OF {schema}.orders FOR VALUES IN (1) "
            "SERVER elsewhere"
        )
        error = refused(kit.sink_on(postgres, schema, mode))
        assert f"partition {schema}.far is a foreign table" in error
        assert f'ALTER TABLE "{schema}"."orders" DETACH PARTITION {schema}.far' in error
    finally:
        postgres.execute("DROP FOREIGN DATA WRAPPER w CASCADE")


def test_privileges_that_are_missing_are_named(postgres: PostgresServer, schema: str) -> None:
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint UNIQUE, text text)")
    postgres.execute("CREATE ROLE clerk LOGIN")
    try:
        postgres.execute(f"GRANT USAGE ON SCHEMA {schema} TO clerk")
        url = postgres.url("clerk")
        prepared, staged, upsert = (
            kit.sink_on(postgres, schema, mode, url=url) for mode in kit.MODES
        )
        assert f'GRANT INSERT ON "{schema}"."orders" TO clerk' in refused(prepared)
        postgres.execute(f"GRANT INSERT ON {schema}.orders TO clerk")
        prepared.create_committer(kit.driver()).preflight()
        assert f'GRANT CREATE ON SCHEMA "{schema}" TO clerk' in refused(staged)
        postgres.execute(f"GRANT CREATE ON SCHEMA {schema} TO clerk")
        assert f'GRANT SELECT, UPDATE ON "{schema}"."orders" TO clerk' in refused(upsert)
        postgres.execute(f"CREATE TABLE {schema}._seamark_ledger (handle text)")  # another role's
        assert (
            f'GRANT SELECT, INSERT, UPDATE, DELETE ON "{schema}"."_seamark_ledger" TO clerk'
        ) in refused(staged)
        postgres.execute(f"DROP TABLE {schema}._seamark_ledger")
        postgres.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        assert "GRANT EXECUTE ON FUNCTION pg_control_system() TO" in refused(prepared)
        postgres.execute("GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        # With these rights alone, each way works from end to end.
        for partition, sink in enumerate((prepared, staged)):
            committer = sink.create_committer(kit.driver())
            committer.preflight()
            committables = kit.write(sink, kit.attempt(0, partition), kit.numbers([partition]))
            assert [o.name for o in committer.commit(committables)] == ["COMMITTED"]
            committer.close()
        assert kit.visible(postgres, schema) == [0, 1]
    finally:
        postgres.execute("DROP OWNED BY clerk CASCADE")
        postgres.execute("DROP ROLE clerk")


@pytest.mark.parametrize("mode", ["prepared", "staged"])
def test_tables_that_a_crash_empties(postgres: PostgresServer, schema: str, mode: str) -> None:
    sink = kit.sink_on(postgres, schema, mode)
    postgres.execute(f"CREATE UNLOGGED TABLE {schema}.orders (id bigint, text text)")
    error = refused(sink)
    assert f"ALTER TABLE {schema}.orders SET LOGGED" in error
    assert "SV006" in error
    postgres.execute(f"DROP TABLE {schema}.orders")
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, text text) PARTITION BY LIST (id)")
    postgres.execute(f"CREATE TABLE {schema}.one PARTITION OF {schema}.orders FOR VALUES IN (1)")
    sink.create_committer(kit.driver()).preflight()
    postgres.execute(
        f"CREATE UNLOGGED TABLE {schema}.two PARTITION OF {schema}.orders FOR VALUES IN (2)"
    )
    assert f"ALTER TABLE {schema}.two SET LOGGED" in refused(sink)


@pytest.mark.parametrize("mode", ["prepared", "staged", "changes"])
def test_row_policies(
    postgres: PostgresServer, schema: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A staged row meets them after the decision, and those that let it through do no harm. A
    delete passes over the rows that they hide."""
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text text)")
    postgres.execute(f"CREATE POLICY even ON {schema}.orders USING (id % 2 = 0)")
    postgres.execute("CREATE ROLE bound LOGIN")
    postgres.execute(f"GRANT ALL ON SCHEMA {schema} TO bound")
    postgres.execute(f"GRANT ALL ON {schema}.orders TO bound")
    sink = kit.sink_on(postgres, schema, mode, url=postgres.url("bound"))
    try:
        sink.create_committer(kit.driver()).preflight()
        postgres.execute(f"ALTER TABLE {schema}.orders ENABLE ROW LEVEL SECURITY")
        if mode != "staged":
            assert "ALTER ROLE bound BYPASSRLS" in refused(sink)
        else:
            sink.create_committer(kit.driver()).preflight()
            assert "ALTER ROLE bound BYPASSRLS" in caplog.text
        caplog.clear()
        postgres.execute("ALTER ROLE bound BYPASSRLS")
        sink.create_committer(kit.driver()).preflight()
        assert "SV005" not in caplog.text
    finally:
        postgres.execute("DROP OWNED BY bound CASCADE")
        postgres.execute("DROP ROLE bound")


@pytest.mark.parametrize("mode", ["staged", "upsert"])
def test_row_policies_on_the_ledger(postgres: PostgresServer, schema: str, mode: str) -> None:
    """As where an event trigger gives them to each new table: Supabase's `ensure_rls`."""
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text text)")
    kit.sink_on(postgres, schema, mode).create_committer(kit.driver()).preflight()
    postgres.execute(f"ALTER TABLE {schema}._seamark_ledger ENABLE ROW LEVEL SECURITY")
    postgres.execute("CREATE ROLE bound LOGIN")
    try:
        postgres.execute(f"GRANT ALL ON SCHEMA {schema} TO bound")
        postgres.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO bound")
        sink = kit.sink_on(postgres, schema, mode, url=postgres.url("bound"))
        said = refused(sink)
        assert f'row policies bind this user on "{schema}"."_seamark_ledger"' in said
        assert "ALTER ROLE bound BYPASSRLS" in said
        postgres.execute("ALTER ROLE bound BYPASSRLS")
        sink.create_committer(kit.driver()).preflight()
    finally:
        postgres.execute("DROP OWNED BY bound CASCADE")
        postgres.execute("DROP ROLE bound")


@pytest.mark.parametrize("of", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA {}"])
def test_publications_of_every_new_table(
    postgres: PostgresServer, schema: str, of: str, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, text text)")
    postgres.execute(f"CREATE PUBLICATION by_name FOR TABLE {schema}.orders")
    postgres.execute(f"CREATE PUBLICATION every {of.format(schema)}")
    try:
        for mode in ("prepared", "staged"):
            assert "PG003" not in caplog.text
            kit.sink_on(postgres, schema, mode).create_committer(kit.driver()).preflight()
        (said,) = [text for text in caplog.messages if "PG003" in text]
        assert "publication every has every new table" in said
    finally:
        postgres.execute("DROP PUBLICATION by_name, every")


@pytest.mark.parametrize("mode", ["prepared", "staged", "upsert"])
def test_sessions_that_only_read(postgres: PostgresServer, schema: str, mode: str) -> None:
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, text text)")
    sink = kit.sink_on(postgres, schema, mode)
    more = "&" if "?" in sink.url else "?"
    url = f"{sink.url}{more}options=-c%20default_transaction_read_only%3Don"
    said = refused(dataclasses.replace(sink, url=url))
    assert "takes no writes" in said and "set default_transaction_read_only to off" in said
    assert "SV002" in said


def test_no_server_is_said_within_seconds(postgres: PostgresServer) -> None:
    begun = time.monotonic()
    error = refused(kit.sink_on(postgres, "s", url="postgresql://me:pw@127.0.0.1:1/db"))
    assert time.monotonic() - begun < 60
    assert "postgresql://me:***@127.0.0.1:1/db" in error
    assert "Connection refused" in error


def test_secrets_are_in_no_text(
    postgres: PostgresServer, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "s3cr3t/pass@word"
    postgres.execute(f"CREATE TABLE {schema}.orders (id bigint, text text)")
    url = (
        f"postgresql://postgres:s3cr3t%2Fpass%40word@127.0.0.1:{postgres.port}/postgres"
        "?sslpassword=hunter2"
    )
    sink = kit.sink_on(postgres, schema, url=url)
    assert pickle.loads(pickle.dumps(sink)) == sink
    committer = sink.create_committer(kit.driver())
    committer.preflight()
    (committable,) = kit.write(sink, kit.attempt(), kit.numbers([1]))
    texts: list[Any] = [sink, sink.server, committer, sink.describe(), sink.dump(committable)]
    bad: PostgresSink = dataclasses.replace(sink, url=url.replace("/postgres?", "/nowhere?"))
    texts.append(refused(bad))
    with pytest.raises(PreCommitError) as caught:
        kit.write(bad, kit.attempt(), kit.numbers([1]))
    texts += [caught.value, caplog.text]
    committer.commit([committable])
    committer.close()
    for text in texts:
        for hidden in (secret, "s3cr3t", "hunter2"):
            assert hidden not in f"{text} {text!r}"

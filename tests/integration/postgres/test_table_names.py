"""A table's name in SQL (the option ``dbtable``) is the table that the server means by it.

How: tables whose names differ by case, dots and quotation marks stand side by side; a row is
written by the sink, and one by the statement of Spark's JDBC writer, ``INSERT INTO <name>``.
Both are in the same table, made by the sink if it is missing.
"""

from __future__ import annotations

import itertools

import pytest

import seamark as sm
from seamark.contracts.sink import CommitOutcome
from seamark.model.errors import ConfigurationError
from seamark.sinks.postgres import PostgresSink
from seamark.streaming.formats import sink_of
from seamark.streaming.job import Place
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer

PLACE = Place("file:///var/lib/checkpoints/etl")
TABLES = ['orders', '"Orders"', '"ORDERS"', '"a.b"', '"a""b"', '" orders "', '"order"']  # fmt: skip
SPELLINGS = [
    "orders", "ORDERS", " Orders\n", '"Orders"', 'public."Orders"', "PUBLIC . orders",
    'test.public."ORDERS"', '"public"."a.b"', '"a""b"', '" orders "', '"order"',
    "o" * 63, "b\u00e4rg$1",
]  # fmt: skip
_numbers = itertools.count(1)


def sink_for(server: PostgresServer, name: str, **options: str) -> PostgresSink:
    login, _, place = server.url().removeprefix("postgresql://").rpartition("@")
    user, _, password = login.partition(":")
    given = {"url": f"jdbc:postgresql://{place}", "user": user, "password": password}
    sink = sink_of("jdbc", {**given, "dbtable": name, **options}, (), PLACE)
    assert isinstance(sink, PostgresSink)
    return sink


def write(sink: PostgresSink, row: int) -> None:
    committer = sink.create_committer(kit.driver())
    committer.preflight()
    (made,) = kit.write(sink, kit.attempt(epoch=row), kit.numbers([row]))
    assert committer.commit([made]) == [CommitOutcome.COMMITTED]
    assert list(committer.list_lingering()) == []
    committer.close()


@pytest.mark.parametrize("mode", ["staged", "prepared"])
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_row_is_in_the_table_that_the_server_means(
    name: str, mode: str, postgres: PostgresServer
) -> None:
    ((database,),) = postgres.execute("SELECT current_database()")
    name = name.replace("test.", f"{database}.")
    sink = sink_for(postgres, name, mode=mode)
    try:
        write(sink, next(_numbers))  # makes the table
        postgres.execute(f"SELECT id, text FROM {name}")
        for table in TABLES:
            postgres.execute(f"CREATE TABLE IF NOT EXISTS {table} (id bigint, text text)")
            postgres.execute(f"DELETE FROM {table}")
        row = next(_numbers)
        write(sink, row)
        postgres.execute(f"INSERT INTO {name} VALUES (0, 'plain')")
        assert {(0,), (row,)} <= set(postgres.execute(f"SELECT id FROM {name}"))
        holding = [
            other
            for other in TABLES
            if postgres.execute(f"SELECT id FROM {other} WHERE id = {row}")
        ]
        assert len(holding) <= 1  # no other one has it
        assert sink.places == sink_for(postgres, f" {name} ").places
    finally:
        postgres.execute("DROP TABLE IF EXISTS _seamark_ledger")
        for table in {*TABLES, name}:
            postgres.execute(f"DROP TABLE IF EXISTS {table}")


def test_every_spelling_of_a_table_is_one_place(postgres: PostgresServer) -> None:
    ((database,),) = postgres.execute("SELECT current_database()")
    spellings = ("orders", "ORDERS", '"orders"', "public.orders", f"{database}.Public.orders")
    places = {tuple(sink_for(postgres, name).places) for name in spellings}
    assert places == {tuple(sm.PostgresSink(postgres.url(), "orders").places)}
    other = sink_for(postgres, '"Orders"').places
    assert tuple(other) not in places
    assert other == sm.PostgresSink(postgres.url(), "Orders").places == sm.PostgresSink(
        postgres.url(), 'public."Orders"'
    ).places  # fmt: skip


def test_the_sinks_own_names_are_as_written() -> None:
    for table, sql in {
        "orders": '"orders"',
        "Orders": '"Orders"',
        "shop.Orders": '"shop"."Orders"',
        '"Orders"': '"Orders"',
        'shop."a.b"': '"shop"."a.b"',
        'we"ird': '"we""ird"',
        '"a""b"': '"a""b"',
    }.items():
        assert sm.PostgresSink("postgresql://u@h/d", table).sql_name == sql
    for table in ("", ".", "a.", ".a", "a.b.c", "a\0b"):
        with pytest.raises(sm.ConfigurationError, match=r"give 'name' or 'schema.name'"):
            sm.PostgresSink("postgresql://u@h/d", table)


@pytest.mark.parametrize(
    "name",
    ["(SELECT 1) t", "orders; DROP TABLE orders", "orders o", "ONLY orders", "a..b", '"a', "1a",
     "a.b.c.d", "orders -- x", 'U&"x"', "'orders'"],
)  # fmt: skip
def test_what_is_no_table_is_refused_in_one_line(name: str, postgres: PostgresServer) -> None:
    with pytest.raises(sm.ConfigurationError, match=r"dbtable is .* no table") as told:
        sink_for(postgres, name)
    assert "\n" not in str(told.value)
    with pytest.raises(sm.ConfigurationError, match="of another database"):
        sink_for(postgres, "other.public.orders")


@pytest.mark.parametrize("table", ["o" * 64, f"{'s' * 64}.orders", "\u00e4" * 32])
def test_a_name_that_the_server_would_cut_off_is_refused(table: str) -> None:
    """Two tables would be one."""
    with pytest.raises(ConfigurationError, match=r"PostgreSQL cuts .* off after 63 bytes"):
        PostgresSink("postgresql://localhost/shop", table)
    assert PostgresSink("postgresql://localhost/shop", f"{'s' * 63}.{'o' * 63}")

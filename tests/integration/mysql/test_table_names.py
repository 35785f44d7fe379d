"""``dbtable`` names the table that the server means by it: as for PostgreSQL, with MySQL's
quotation marks, and a database in front.

How: as `tests/integration/postgres/test_table_names.py`.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest

import seamark as sm
from seamark.contracts.sink import CommitOutcome
from seamark.sinks.mysql import MySQLSink
from seamark.streaming.formats import sink_of
from seamark.streaming.job import Place
from seamark.verify.conformance.steps import attempt
from tests.integration.mysql import sink_kit as kit
from tests.integration.mysql.conftest import fresh_database
from tests.servers.mariadb import MariaDBServer

PLACE = Place("file:///var/lib/checkpoints/etl")
TABLES = ["orders", "Orders", "`a.b`", "`a``b`", "`order`"]


def sink_for(server: MariaDBServer, database: str, name: str, **options: str) -> MySQLSink:
    url = urlsplit(server.url(database=database))
    given = {
        "url": f"jdbc:mysql://{url.netloc.rpartition('@')[2]}{url.path}",
        "user": str(url.username),
        "password": unquote(url.password or ""),
    }
    sink = sink_of("jdbc", {**given, "dbtable": name, **options}, (), PLACE)
    assert isinstance(sink, MySQLSink)
    return sink


def write(sink: MySQLSink, row: int) -> None:
    committer = sink.create_committer(kit.context())
    committer.preflight()
    writer = sink.create_writer(attempt(epoch=row))
    writer.write(kit.batch([row]))
    (made,) = writer.prepare_commit()
    assert committer.commit([made]) == [CommitOutcome.COMMITTED]
    assert list(committer.list_lingering()) == []
    committer.close()


@pytest.mark.parametrize("mode", ["staged", "xa"])
@pytest.mark.parametrize(
    "name",
    ["orders", " Orders\n", "`Orders`", "{database}.orders", "`{database}` . `Orders`", "{other}.t",
     "`a.b`", "`a``b`", "`order`", "1st$", "o" * 64],
)  # fmt: skip
def test_a_row_is_in_the_table_that_the_server_means(
    name: str, mode: str, mariadb: MariaDBServer, database: str
) -> None:
    with fresh_database(mariadb) as other:
        name = name.format(database=database, other=other)
        sink = sink_for(mariadb, database, name, mode=mode)
        write(sink, 1)  # makes the table
        assert mariadb.execute(f"SELECT id, text FROM {name}", database=database) == [(1, "row 1")]
        for table in TABLES:
            made = f"CREATE TABLE IF NOT EXISTS {table} (id BIGINT, text LONGTEXT, own INT)"
            mariadb.execute(made, database=database)
        write(sink, 2)
        mariadb.execute(f"INSERT INTO {name} (id) VALUES (3)", database=database)
        rows = mariadb.execute(f"SELECT id FROM {name} ORDER BY id", database=database)
        assert list(rows) == [(1,), (2,), (3,)]
        counts = [
            mariadb.execute(f"SELECT count(*) FROM {table}", database=database)[0][0]
            for table in TABLES
        ]
        assert sum(counts) in (0, 3)
        assert sink.places == sink_for(mariadb, database, f" {name} ").places


def test_a_database_in_front_of_the_name_stands_for_the_urls(mariadb: MariaDBServer) -> None:
    own = sink_for(mariadb, "shop", "orders")
    assert sink_for(mariadb, "", "shop.orders") == sink_for(mariadb, "x", "`shop`.`orders`") == own
    assert own.places != sink_for(mariadb, "x", "orders").places


@pytest.mark.parametrize(
    "name", ["(SELECT 1) t", "orders; DROP TABLE orders", "orders o", '"Orders"', "a.b.c", "a..b"]
)
def test_what_is_no_table_is_refused_in_one_line(name: str, mariadb: MariaDBServer) -> None:
    with pytest.raises(sm.ConfigurationError, match=r"dbtable is .* no table") as told:
        sink_for(mariadb, "shop", name)
    assert "\n" not in str(told.value)

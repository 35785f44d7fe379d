"""MySQLSink with op: `tests/changes_suite.py` on MariaDB and on MySQL 8.

The conformance suite runs with op too (`test_sink_conformance.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seamark.model.errors import ConfigurationError
from seamark.sinks.mysql import MySQLSink
from tests.changes_suite import ChangesSuite, ChangesUnderTest, commit, driver, write
from tests.integration.mysql.conftest import fresh_database
from tests.servers.mariadb import MariaDBServer


def under_test(server: MariaDBServer, database: str, *, infile: bool = True) -> ChangesUnderTest:
    server.execute(
        f"CREATE TABLE {database}.orders (id BIGINT PRIMARY KEY, text LONGTEXT NOT NULL, "
        "note VARCHAR(9) DEFAULT 'new', CHECK (text IS NOT NULL AND text <> 'bad'))"
    )
    select = f"SELECT id, text, note FROM {database}.orders"
    return ChangesUnderTest(
        MySQLSink(server.url(database=database), "orders", "upsert", keys=["id"], op="op"),
        lambda: {key: (text, note) for key, text, note in server.execute(select)},
        lambda: server.execute("UPDATE orders SET note = 'seen'", database=database) is not None,
        "new",
    )


class TestMariaDB(ChangesSuite):
    @pytest.fixture
    def under(self, mariadb: MariaDBServer, database: str) -> ChangesUnderTest:
        return under_test(mariadb, database)


class TestMySQL8(ChangesSuite):
    @pytest.fixture
    def under(self, mysql8: MariaDBServer) -> Iterator[ChangesUnderTest]:
        with fresh_database(mysql8) as database:
            yield under_test(mysql8, database)


def test_a_new_table_has_no_op_column(mariadb: MariaDBServer, database: str) -> None:
    url = mariadb.url(database=database)
    sink = MySQLSink(url, "orders", "upsert", keys=["id"], op="op", create_table=True)
    committer = sink.create_committer(driver())
    committer.preflight()
    committer.close()
    commit(sink, write(sink, [(1, "a", "insert"), (2, "b", "insert"), (1, None, "delete")], 0))
    assert mariadb.execute(f"SELECT * FROM {database}.orders") == [(2, "b")]


def test_op_without_upsert() -> None:
    with pytest.raises(ConfigurationError, match=r"no key.*give mode='upsert' and keys="):
        MySQLSink("mysql://a@localhost/a", "orders", op="op")

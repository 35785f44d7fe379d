"""One real server of each kind for the session, and an empty database of its own for each test.

The conformance suite runs on MariaDB and on MySQL 8; the other tests on MariaDB, or on MySQL with
``SEAMARK_TEST_MYSQL=mysql`` or ``newest``, and with it the suite's part for MariaDB. A test may not
kill or pause the server: it starts another (`own_server`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping

import pytest

from tests.integration.mysql.sink_kit import all_prepared, end_prepared
from tests.servers.mariadb import MariaDBServer
from tests.servers.mysql import MySQLServer, NewestMySQLServer
from tests.servers.needed import needed

KINDS = {"mariadb": MariaDBServer, "mysql": MySQLServer, "newest": NewestMySQLServer}
CUT_SHORT = {
    "sql_safe_updates": 1, "sql_select_limit": 1, "sql_big_selects": 0, "max_join_size": 1,
    "autocommit": 0, "completion_type": 1,
}  # fmt: skip
_numbers = itertools.count(1)


@contextlib.contextmanager
def serving(
    kind: str = os.environ.get("SEAMARK_TEST_MYSQL", "mariadb"),
    settings: Mapping[str, str] | None = None,
) -> Iterator[MariaDBServer]:
    """Run a server."""
    with needed(kind):
        server = KINDS[kind](settings)
    with server:
        yield server


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyMySQL reads the machine's certificate authorities for each connection, for 20 ms of CPU;
    none of them vouches for a server of these tests."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "/dev/null")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def mysql8() -> Iterator[MariaDBServer]:
    with serving("mysql") as server:
        yield server


@pytest.fixture
def database(mariadb: MariaDBServer) -> Iterator[str]:
    """The name of an empty database."""
    with fresh_database(mariadb) as name:
        yield name


@contextlib.contextmanager
def fresh_database(server: MariaDBServer) -> Iterator[str]:
    """Make one. A test's prepared transactions are rolled back: the suite's job is the same in
    every test."""
    name = f"d{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name}")
    yield name
    for format_id, length, xid in all_prepared(server):
        gtrid, bqual = xid[:length].hex(), xid[length:].hex()
        end_prepared(server, f"XA ROLLBACK X'{gtrid}',X'{bqual}',{format_id}")
    server.execute(f"DROP DATABASE {name}")


@contextlib.contextmanager
def of_new_sessions(server: MariaDBServer, which: str) -> Iterator[None]:
    """Other defaults of the server's: "cut short", "serializable", "timed", "idle" or "no
    copy"."""
    maria = "MariaDB" in server.execute("SELECT @@version")[0][0]
    settings: dict[str, object] = {
        "cut short": CUT_SHORT,
        "serializable": {"tx_isolation" if maria else "transaction_isolation": "'SERIALIZABLE'"},
        "timed": {"max_statement_time": 0.00001} if maria else {"max_execution_time": 1},
        "no copy": {"alter_algorithm": "'INSTANT'"} if maria else {},
        "idle": {"wait_timeout": 1, **({"idle_transaction_timeout": 1} if maria else {})},
    }[which]
    with contextlib.closing(server.connect()) as root, root.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(f"SET GLOBAL {name}={value}")
        try:
            yield
        finally:
            for name in settings:
                cursor.execute(f"SET GLOBAL {name}=DEFAULT")

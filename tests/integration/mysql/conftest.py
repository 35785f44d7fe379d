"""One real MariaDB for the session, and an empty database of its own for each test.

A test that kills or pauses the server starts another (`own_server`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.servers.mariadb import MariaDBServer, NotToBeHadError

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    try:
        server = MariaDBServer()
    except NotToBeHadError as error:
        pytest.skip(f"MariaDB: {error}")
    with server:
        yield server


@pytest.fixture
def database(mariadb: MariaDBServer) -> Iterator[str]:
    """The name of an empty database. What a test leaves prepared is rolled back: the suite's job is
    the same in every test."""
    name = f"d{next(_numbers)}"
    mariadb.execute(f"CREATE DATABASE {name}")
    yield name
    for _, _, _, data in mariadb.execute("XA RECOVER FORMAT='SQL'"):
        mariadb.execute(f"XA ROLLBACK {data}")
    mariadb.execute(f"DROP DATABASE {name}")

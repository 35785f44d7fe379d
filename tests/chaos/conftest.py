"""Servers for the matrix, apart from those shared by `tests/integration`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seamark.dev.kafka import LocalKafka
from tests.servers.mariadb import MariaDBServer
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def chaos_kafka() -> Iterator[LocalKafka]:
    """A broker of the defaults."""
    with LocalKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def chaos_postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def chaos_mariadb() -> Iterator[MariaDBServer]:
    with needed("MariaDB"):
        server = MariaDBServer()
    with server:
        yield server


@pytest.fixture(scope="session")
def chaos_redis() -> Iterator[RedisServer]:
    with needed("Redis"):
        server = RedisServer()
    with server:
        yield server

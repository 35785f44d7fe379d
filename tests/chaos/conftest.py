"""Servers for the matrix, apart from those that `tests/integration` shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server_process import NotToBeHadError
from tidemark.dev.kafka import LocalKafka


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
    try:
        server = MariaDBServer()
    except NotToBeHadError as error:
        pytest.skip(f"MariaDB: {error}")
    with server:
        yield server


@pytest.fixture(scope="session")
def chaos_redis() -> Iterator[RedisServer]:
    try:
        server = RedisServer()
    except NotToBeHadError as error:
        pytest.skip(f"Redis: {error}")
    with server:
        yield server

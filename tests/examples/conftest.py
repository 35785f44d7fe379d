"""The servers of the examples, one of each kind for the session; each example has its own topics,
tables and keys there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seamark.dev.kafka import LocalKafka
from tests.examples.example import Example
from tests.servers.mariadb import MariaDBServer
from tests.servers.needed import needed
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    with needed("MariaDB"):
        server = MariaDBServer()
    with server:
        yield server


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with needed("Redis"):
        server = RedisServer()
    with server:
        yield server


@pytest.fixture
def example(tmp_path: Path) -> Callable[..., Example]:
    """Return a function: `example(name, **variables) -> Example`."""

    def copy(name: str, **variables: str) -> Example:
        return Example(name, tmp_path, **variables)

    return copy

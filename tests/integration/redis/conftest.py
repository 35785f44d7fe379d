"""One real Redis for the session, emptied for each test; a test may not kill or pause it: it has
its own (`own_redis`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.needed import needed
from tests.servers.redis import RedisServer


def _serving() -> Iterator[RedisServer]:
    with needed("Redis"):
        server = RedisServer()
    with server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    yield from _serving()


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    """The session's server, empty."""
    redis_server.client().flushall()
    return redis_server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    yield from _serving()

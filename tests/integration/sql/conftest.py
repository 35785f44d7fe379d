"""The databases that `SqlSink` is tried on: SQLite and DuckDB, which are files, PostgreSQL and
MariaDB; each test has a place of its own in one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.mysql.conftest import (  # noqa: F401 - fixtures
    database,
    mariadb,
    mysql8,
    no_authorities,
)
from tests.integration.sql.sink_kit import DIALECTS, Place


@pytest.fixture(params=DIALECTS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A fresh place, in each kind of database."""
    with DIALECTS[request.param](request.getfixturevalue) as made:
        yield made


@pytest.fixture(params=[dialect for dialect in DIALECTS if dialect != "duckdb"])
def staging(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A fresh place, in each kind of database that tasks stage in."""
    with DIALECTS[request.param](request.getfixturevalue) as made:
        yield made


@pytest.fixture(params=["postgresql", "mariadb"])
def served(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A fresh place, in each server."""
    with DIALECTS[request.param](request.getfixturevalue) as made:
        yield made

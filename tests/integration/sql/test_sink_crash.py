"""The database is away, silent, killed with -9, locked, full or not mounted, in each phase.

How: servers of this module's own, free to die, a small disk for SQLite's file, and another
program's transaction that holds the target.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from seamark.verify.conformance import (
    OutageConformance,
    ServerConformance,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.mysql.conftest import serving
from tests.integration.sql.sink_kit import (
    Place,
    duckdb_place,
    mariadb_place,
    opened_elsewhere,
    postgres_place,
    sqlite_place,
    under_test,
)
from tests.servers.disk import SmallDisk
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def mortal_postgres() -> Iterator[PostgresServer]:
    # Nothing reaches the disk in time by chance, without a flush on purpose.
    with PostgresServer({"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture(scope="module")
def mortal_mariadb() -> Iterator[MariaDBServer]:
    with serving() as server:
        yield server


@pytest.fixture(params=["postgresql", "mariadb"])
def mortal(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "postgresql":
        with postgres_place(request.getfixturevalue("mortal_postgres")) as made:
            yield made
    else:
        with mariadb_place(request.getfixturevalue("mortal_mariadb")) as made:
            yield made


class TestServer(ServerConformance):
    @pytest.fixture
    def under(self, mortal: Place) -> SinkUnderTest:
        return under_test(mortal, "staged")


class TestServerOutages(OutageConformance):
    """Killed; and by its line reset, silent and cut in the middle of an answer."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, mortal: Place) -> SinkUnderTest:
        return under_test(mortal, "staged", timeout="3s")


class TestFileOutages(OutageConformance):
    """The disk is full or not mounted; another program holds the database."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture(params=["sqlite", "duckdb"])
    def under(self, request: pytest.FixtureRequest, disk: SmallDisk) -> Iterator[SinkUnderTest]:
        in_sqlite = request.param == "sqlite"
        with (sqlite_place if in_sqlite else duckdb_place)(disk.path) as place:
            made = under_test(place, "staged", timeout="3s")
            hold = partial(locked if in_sqlite else opened_elsewhere, place)
            outages: dict[str, Any] = {**disk.outages, "locked": hold}
            yield dataclasses.replace(made, outages=outages)


@contextlib.contextmanager
def locked(place: Place) -> Iterator[None]:
    engine = sa.create_engine(place.url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.connection.driver_connection.isolation_level = None
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        yield
        connection.exec_driver_sql("ROLLBACK")

"""MySQLSink under the conformance suite, in each mode: on MariaDB and on MySQL 8, each a real one,
read by a client of its own.

In upsert mode each number is a key, so that the suite's rows never meet; rows of one key are in
`test_sink_rows.py`. Deaths of its server are in `test_sink_crash.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seamark.verify.conformance import (
    DeadLetterConformance,
    ExpiryConformance,
    ForgettingConformance,
    LineConformance,
    RefusalConformance,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.mysql.conftest import fresh_database
from tests.integration.mysql.sink_kit import MODES, sink_under_test
from tests.servers.mariadb import MariaDBServer


class TestMariaDB(
    SinkConformance,
    ExpiryConformance,
    ForgettingConformance,
    RefusalConformance,
    DeadLetterConformance,
    LineConformance,
):
    test_outages_are_tried = None  # type: ignore[assignment]  # test_sink_crash.py has them

    @pytest.fixture(params=[*MODES, "changes"])
    def under(
        self, request: pytest.FixtureRequest, mariadb: MariaDBServer, database: str
    ) -> SinkUnderTest:
        return sink_under_test(mariadb, database, request.param)


class TestMySQL8(
    SinkConformance,
    ExpiryConformance,
    ForgettingConformance,
    RefusalConformance,
    DeadLetterConformance,
):
    test_outages_are_tried = None  # type: ignore[assignment]  # test_sink_crash.py has them

    @pytest.fixture(params=[*MODES, "changes"])
    def under(
        self, request: pytest.FixtureRequest, mysql8: MariaDBServer
    ) -> Iterator[SinkUnderTest]:
        with fresh_database(mysql8) as database:
            yield sink_under_test(mysql8, database, request.param)

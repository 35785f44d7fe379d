"""PostgresSink under the conformance suite, in each mode: a real server, read by its own driver.

Deaths of its server are in `test_sink_crash.py`.
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
from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer


@pytest.fixture(params=[*kit.MODES, "changes"])
def under(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[SinkUnderTest]:
    with kit.sink_under_test(postgres, request.param) as made:
        yield made


class TestPostgres(
    SinkConformance, ExpiryConformance, RefusalConformance, DeadLetterConformance, LineConformance
):
    test_outages_are_tried = None  # type: ignore[assignment]  # test_sink_crash.py has them


class TestPostgresLedger(ForgettingConformance):
    """In `prepared` mode the server is asked for a transaction's id, and remembers it for many
    millions of transactions: `test_sink_outcomes.py` asks for a forgotten one."""

    @pytest.fixture(params=["staged", "upsert", "changes"])
    def under(
        self, request: pytest.FixtureRequest, postgres: PostgresServer
    ) -> Iterator[SinkUnderTest]:
        with kit.sink_under_test(postgres, request.param) as made:
            yield made

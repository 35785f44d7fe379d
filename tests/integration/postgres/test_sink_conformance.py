"""PostgresSink under the conformance suite, in each mode: a real server, read by its own driver.

What it does when its server dies is in `test_sink_crash.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.postgres import sink_kit as kit
from tests.servers.postgres import PostgresServer
from tidemark.verify.conformance import (
    DeadLetterConformance,
    ExpiryConformance,
    LineConformance,
    RefusalConformance,
    SinkConformance,
    SinkUnderTest,
)


@pytest.fixture(params=kit.MODES)
def under(request: pytest.FixtureRequest, postgres: PostgresServer) -> Iterator[SinkUnderTest]:
    with kit.sink_under_test(postgres, request.param) as made:
        yield made


class TestPostgres(
    SinkConformance, ExpiryConformance, RefusalConformance, DeadLetterConformance, LineConformance
):
    pass

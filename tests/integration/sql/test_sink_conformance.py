"""SqlSink under the conformance suite, in each mode, on each database. Outages and deaths of the
server are in `test_sink_crash.py`."""

from __future__ import annotations

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
from tests.integration.sql.sink_kit import Place, under_test


class TestSql(
    SinkConformance,
    ExpiryConformance,
    ForgettingConformance,
    RefusalConformance,
    DeadLetterConformance,
):
    test_outages_are_tried = None  # type: ignore[assignment]  # test_sink_crash.py has them

    @pytest.fixture(params=["staged", "changes"])
    def under(self, request: pytest.FixtureRequest, place: Place) -> SinkUnderTest:
        return under_test(place, request.param)


class TestLine(LineConformance):
    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, served: Place) -> SinkUnderTest:
        return under_test(served, "staged")

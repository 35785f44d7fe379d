"""DeltaSink under the conformance suite: a real table on a local disk, plain, partitioned and
changed by key, read by delta-rs's own query engine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from seamark.verify.conformance import (
    ExpiryConformance,
    ForgettingConformance,
    OutageConformance,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.delta.sink_kit import by_key, made, under_suite
from tests.servers.disk import SmallDisk


@pytest.fixture(params=["plain", "partitioned", "changes"])
def under(request: pytest.FixtureRequest, tmp_path: Path) -> SinkUnderTest:
    sink = made(tmp_path / "a table", partition_by=["part"] if request.param != "plain" else [])
    under = under_suite(sink)
    return by_key(under) if request.param == "changes" else under


class TestOutages(OutageConformance):
    """The table's disk is full, or not mounted."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture(params=["plain", "changes"])
    def under(self, request: pytest.FixtureRequest, disk: SmallDisk) -> SinkUnderTest:
        under = under_suite(made(disk.path / "a table"))
        under = dataclasses.replace(under, outages=disk.outages)
        return by_key(under) if request.param == "changes" else under


class TestDelta(SinkConformance, ExpiryConformance, ForgettingConformance):
    pass

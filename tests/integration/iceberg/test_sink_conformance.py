"""IcebergSink under the conformance suite: a real table on a local disk in an SQLite catalog, plain
partitioned and changed by key, read by pyiceberg."""

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
from tests.integration.iceberg.sink_kit import by_key, catalog_at, made, under_suite
from tests.servers.disk import SmallDisk


@pytest.fixture(params=["plain", "partitioned", "changes"])
def under(request: pytest.FixtureRequest, tmp_path: Path) -> SinkUnderTest:
    by = ["part", "bucket(4, id)"] if request.param != "plain" else []
    under = under_suite(made(catalog_at(tmp_path / "a b"), by))
    return by_key(under) if request.param == "changes" else under


class TestOutages(OutageConformance):
    """The disk with the table and its catalog is full, or not mounted."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture(params=["plain", "changes"])
    def under(self, request: pytest.FixtureRequest, disk: SmallDisk) -> SinkUnderTest:
        under = under_suite(made(catalog_at(disk.path)))
        under = dataclasses.replace(under, outages=disk.outages)
        return by_key(under) if request.param == "changes" else under


class TestIceberg(SinkConformance, ExpiryConformance, ForgettingConformance):
    pass

"""IcebergSink with its tables on HDFS, by Seamark's own client: pyiceberg's needs Java."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from seamark.verify.conformance import (
    OutageConformance,
    ServerConformance,
    ServerUnderTest,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.iceberg.sink_kit import made, under_suite
from tests.servers.hdfs import LocalHdfs


@pytest.fixture
def under(hdfs: LocalHdfs, tmp_path: Path) -> SinkUnderTest:
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{hdfs.uri}/{uuid.uuid4()}",
        "py-io-impl": "seamark.sinks.iceberg.table_io.TableFiles",  # for the reader
    }
    kill, restart = partial(hdfs.kill, "namenode"), partial(hdfs.restart, "namenode")
    return replace(
        under_suite(made(catalog, ["part"])), server=ServerUnderTest(kill=kill, restart=restart)
    )


class TestWhatHdfsCouldBreak:
    """A part of the suite, for every run: the part about the store rather than the sink."""

    _checkpoints = SinkConformance._checkpoints
    test_killed = SinkConformance.test_a_commit_killed_at_each_failpoint_is_ended_by_the_next
    test_listing = SinkConformance.test_a_recovery_lists_exactly_what_lingers


@pytest.mark.chaos
class TestOutages(OutageConformance):
    """The NameNode is away."""

    _checkpoints = SinkConformance._checkpoints


@pytest.mark.chaos
class TestIcebergOnHdfs(SinkConformance, ServerConformance):
    """The whole of it."""

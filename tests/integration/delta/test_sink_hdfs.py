"""``make chaos``: DeltaSink on a real HDFS under the suite, with the NameNode killed under it."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from seamark.verify.conformance import (
    ExpiryConformance,
    OutageConformance,
    ServerConformance,
    ServerUnderTest,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.delta.sink_kit import made, under_suite
from tests.servers.hdfs import LocalHdfs


@pytest.fixture
def under(hdfs: LocalHdfs) -> SinkUnderTest:
    sink = made(f"{hdfs.uri}/delta/{uuid.uuid4()}/orders", ["part"])
    kill, restart = partial(hdfs.kill, "namenode"), partial(hdfs.restart, "namenode")
    return under_suite(sink, ServerUnderTest(kill=kill, restart=restart))


@pytest.mark.chaos
class TestOutages(OutageConformance):
    """The NameNode is away. Where it hangs, so does delta-rs, until the job's deadline."""

    _checkpoints = SinkConformance._checkpoints


@pytest.mark.chaos
class TestDeltaOnHdfs(SinkConformance, ExpiryConformance, ServerConformance):
    pass

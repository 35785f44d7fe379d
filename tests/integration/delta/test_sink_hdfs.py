"""``make chaos``: DeltaSink on a real HDFS under the suite, with the NameNode killed under it."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import uuid
from collections.abc import Iterator
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


class TestOutages(OutageConformance):
    """The NameNode hangs or is away."""

    _checkpoints = SinkConformance._checkpoints

    @pytest.fixture
    def under(self, hdfs: LocalHdfs, under: SinkUnderTest) -> SinkUnderTest:
        return dataclasses.replace(under, server=None, outages={"hangs": partial(hangs, hdfs)})


@contextlib.contextmanager
def hangs(hdfs: LocalHdfs) -> Iterator[None]:
    hdfs.send("namenode", signal.SIGSTOP)
    try:
        yield
    finally:
        hdfs.send("namenode", signal.SIGCONT)


@pytest.mark.chaos
class TestDeltaOnHdfs(SinkConformance, ExpiryConformance, ServerConformance):
    pass

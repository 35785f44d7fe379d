"""``make chaos``: DeltaSink on a real HDFS under the suite, with the NameNode killed under it."""

from __future__ import annotations

import uuid

import pytest

from tests.integration.delta.sink_kit import batch, made, numbers
from tidemark.dev.hdfs import LocalHdfs
from tidemark.file_systems import HadoopSettings, open_directory
from tidemark.verify.conformance import (
    ExpiryConformance,
    ServerConformance,
    ServerUnderTest,
    SinkConformance,
    SinkUnderTest,
)


@pytest.fixture
def under(hdfs: LocalHdfs) -> SinkUnderTest:
    sink = made(f"{hdfs.uri}/delta/{uuid.uuid4()}/orders", ["part"])
    files = open_directory(sink.path, HadoopSettings())
    return SinkUnderTest(
        sink=sink,
        batch=batch,
        visible=lambda: numbers(sink),
        writer_failpoint="data-files-written",
        commit_failpoints=("delta-committed",),
        drop=lambda found: files.delete(found.data_files[0].path),
        server=ServerUnderTest(
            kill=lambda: hdfs.kill("namenode"), restart=lambda: hdfs.restart("namenode")
        ),
    )


@pytest.mark.chaos
class TestDeltaOnHdfs(SinkConformance, ExpiryConformance, ServerConformance):
    pass

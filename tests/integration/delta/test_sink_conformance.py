"""DeltaSink under the conformance suite: a real table on a local disk, plain, partitioned and
changed by key, read by delta-rs's own query engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from seamark.verify.conformance import (
    ExpiryConformance,
    ForgettingConformance,
    SinkConformance,
    SinkUnderTest,
)
from tests.integration.delta.sink_kit import batch, made, under_suite


@pytest.fixture(params=["plain", "partitioned", "changes"])
def under(request: pytest.FixtureRequest, tmp_path: Path) -> SinkUnderTest:
    sink = made(tmp_path / "a table", partition_by=["part"] if request.param != "plain" else [])
    under = under_suite(sink)
    if request.param != "changes":
        return under
    changed = dataclasses.replace(sink, keys=["id"], op="op")
    return dataclasses.replace(under, sink=changed, batch=with_op)


def with_op(numbers: Sequence[int]) -> pa.RecordBatch:
    rows = batch(numbers)
    return rows.append_column("op", pa.array(["insert"] * rows.num_rows))


class TestDelta(SinkConformance, ExpiryConformance, ForgettingConformance):
    pass

"""How: handwritten statistics of ended checkpoints are added up, as the recorder's thread does."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from seamark.checkpoint.flow_figures import FlowFigures
from seamark.model.checkpoint_statistics import CheckpointStatus
from seamark.model.rates import OFFSETS_BEHIND, WINDOW_CHECKPOINTS
from tests.unit.model.test_rates import checkpoint, operator, sink, source


def test_the_sums_go_on_and_only_the_last_minute_is_kept() -> None:
    flow = FlowFigures(lambda: 2)
    begun_ms = round(time.time() * 1e3) - 2_000_000
    for n in range(100):
        at = begun_ms + n * 20_000
        behind = {OFFSETS_BEHIND: n}
        flow.add(checkpoint(n, source("a", 10, **behind), sink("x", 5, 20, 10), at_ms=at))
    read, written = flow.of("a"), flow.of("x")
    assert (read.rows, read.lag, written.rows, written.lag) == (1000, 99, 500, None)
    assert (written.subtasks, written.busy_ms) == (2, 100 * 30)
    assert read.rates.records_per_second == pytest.approx(0.5)
    assert len(flow._recent) == WINDOW_CHECKPOINTS
    assert flow.of("nobody").rows == 0
    assert list(flow.uids()) == ["a", "x"]


def test_a_failed_checkpoint_is_counted_and_its_rows_are_not() -> None:
    flow = FlowFigures()
    failed = replace(checkpoint(1, source("a", 10), sink("x", 5)), status=CheckpointStatus.FAILED)
    flow.add(failed)
    assert (flow.completed, flow.failed, flow.last_failed) == (0, 1, failed)
    assert flow.last_completed is None
    assert flow.of("x").rows == 0


def test_what_spark_did_not_report_keeps_its_last_figures() -> None:
    flow = FlowFigures()
    flow.add(checkpoint(1, source("a", 10, **{OFFSETS_BEHIND: 7}), operator("c"), sink("x", 5)))
    flow.add(checkpoint(2, sink("x", 5)))
    assert (flow.of("a").rows, flow.of("a").lag, flow.of("x").rows) == (10, 7, 10)
    assert flow.of("a").busy_ms is None

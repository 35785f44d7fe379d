"""How: against numpy's same method on random values, and against figures of a real Flink."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from seamark.model.stats_summary import UNKNOWN, StatsSummary, percentile


@pytest.mark.parametrize("count", [1, 2, 3, 19, 20, 99, 100, 1000, 1001])
def test_percentiles_are_those_of_numpy(count: int) -> None:
    values = sorted(random.Random(count).randrange(0, 10_000) for _ in range(count))
    for percent in (50, 90, 95, 99, 99.9):
        wanted = np.percentile(values, percent, method="weibull")
        assert percentile(values, percent) == pytest.approx(wanted), percent


def test_a_summary_has_flinks_fields_and_leaves_out_what_is_not_known() -> None:
    summary = StatsSummary.of([10, UNKNOWN, 20, 41])
    assert summary.to_json() == {
        "min": 10, "max": 41, "avg": 23,
        "p50": 20.0, "p90": 41.0, "p95": 41.0, "p99": 41.0, "p999": 41.0,
    }  # fmt: skip


def test_a_summary_of_nothing_says_nan_as_flink_does() -> None:
    shown = StatsSummary.of([]).to_json()
    assert (shown["min"], shown["p50"], shown["p999"]) == (0, "NaN", "NaN")
    assert math.isnan(percentile([], 50))

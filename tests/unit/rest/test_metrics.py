"""How: durations as real commits and epochs have them; the quantile is worked out of the buckets as
Prometheus's `histogram_quantile` does.
"""

from __future__ import annotations

import pytest

from seamark.rest.metrics import BUCKETS_S, Durations


def quantile(share: float, buckets: list[tuple[str, float]]) -> float:
    rank, below, bound = share * buckets[-1][1], 0.0, 0.0
    for upper, count in buckets:
        if count >= rank:
            return bound + (float(upper) - bound) * (rank - below) / (count - below)
        below, bound = count, float(upper)
    raise AssertionError("the last bucket has all")


@pytest.mark.parametrize("duration_ms", [1, 3, 8, 14, 40, 700, 15_000, 200_000])
def test_the_median_is_about_what_the_durations_are(duration_ms: int) -> None:
    durations = Durations()
    for _ in range(100):
        durations.add(duration_ms)
    durations.add(-1)  # not known
    assert durations.buckets()[-1] == ("+Inf", 100.0)
    median_ms = quantile(0.5, durations.buckets()) * 1e3
    assert duration_ms / 2.5 <= median_ms <= duration_ms * 2.5


def test_the_buckets_go_up() -> None:
    assert list(BUCKETS_S) == sorted(set(BUCKETS_S))

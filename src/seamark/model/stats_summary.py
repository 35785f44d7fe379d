"""Least, greatest, average and percentiles of one figure, as in Flink's checkpoint summary."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

UNKNOWN = -1
"""An unknown figure, as in Flink."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the `percent`-th percentile (above 0, at most 100) of ascending values, interpolated.
    The position is `percent` / 100 * (n + 1), the default of Apache Commons Math and so of Flink
    (numpy: ``method="weibull"``). Positions outside the values give the least or the greatest
    value. NaN without values."""
    if not ordered:
        return float("nan")
    position = percent / 100 * (len(ordered) + 1)
    below = int(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (position - below) * (high - low)


@dataclass(frozen=True)
class StatsSummary:
    """Least, greatest, average and percentiles of one figure; percentiles of nothing are NaN."""

    min: int = 0
    max: int = 0
    avg: int = 0
    p50: float = math.nan
    p90: float = math.nan
    p95: float = math.nan
    p99: float = math.nan
    p999: float = math.nan

    @staticmethod
    def of(values: Iterable[int]) -> "StatsSummary":
        """Sum up the known values."""
        known = sorted(value for value in values if value != UNKNOWN)
        if not known:
            return StatsSummary()
        return StatsSummary(
            known[0],
            known[-1],
            sum(known) // len(known),
            *(percentile(known, percent) for percent in (50, 90, 95, 99, 99.9)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as Flink's, with the text ``"NaN"`` for a percentile of nothing."""
        return {
            name: "NaN" if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }

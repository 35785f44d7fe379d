"""How the watermark of a plan with several streams is held back, and let go.

How: figures as Spark's accumulators have them; no Spark.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from seamark.run import held_watermark
from seamark.run.held_watermark import KeyedEpochs
from seamark.run.keyed_operator import InFlight

DELAY_MS = 5


class Times:
    """Stands for the `EventTimeStats` of one epoch."""

    def __init__(self, *newest_ms: int) -> None:
        self._seen = list(newest_ms)

    def __getattr__(self, name: str) -> Any:
        assert name == "max_$eq"
        return self._replace

    def _replace(self, newest_ms: int) -> None:
        self._seen = [newest_ms] * len(self._seen)

    def value(self) -> Times:
        return self

    def count(self) -> int:
        return len(self._seen)

    def max(self) -> int:
        return max(self._seen)

    def add(self, newest_ms: int) -> None:
        self._seen.append(newest_ms)


@pytest.mark.parametrize(("beside", "let_go"), [([], [900]), ([Times(100)], [900, 100])])
def test_rows_that_waited_move_no_other_streams_watermark(
    monkeypatch: pytest.MonkeyPatch, beside: list[Times], let_go: list[int]
) -> None:
    """Their stream is far ahead of the one beside, whose rows would all be late."""
    keyed: Any = SimpleNamespace(uid="sessions", event_time=True)
    epochs = KeyedEpochs([keyed], 1.0)

    def newest_after(epoch: int, report: InFlight, *times: Times) -> list[int]:
        places = [SimpleNamespace(eventTimeStats=t.value, delayMs=lambda: DELAY_MS) for t in times]
        monkeypatch.setattr(held_watermark, "nodes", lambda plan, name: places)
        epochs._hold_all(epoch, 0, None, {"sessions": report})
        return [t.max() for t in times if t.count()]

    waits = InFlight(waiting={0: 1}, oldest_ms=50, stored_new_rows=True)
    assert newest_after(0, waits, Times(900), *beside)[0] == 50 + DELAY_MS
    assert newest_after(1, InFlight(newest_ms=900), Times(), *(Times() for _ in beside)) == let_go

"""A reader that ends before it is told to: what it would have seen, nobody has. How: real threads
over a query that fails in them alone."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from seamark.verify.outcome import Outcome
from seamark.verify.readers import WatchedTable
from seamark.verify.trial import ROWS, Trial, Workload

NOTHING = np.zeros(0, np.int64), np.zeros(0, np.int64)


def test_a_run_whose_reader_has_failed_is_not_good(tmp_path: Path) -> None:
    asked = threading.Event()

    def query() -> Any:
        if threading.current_thread() is threading.main_thread():
            return NOTHING
        asked.set()
        raise ValueError("no number")

    sink = WatchedTable("table", ROWS, query)
    workload = Workload(
        "job", [], tmp_path / "job", "127.0.0.1:9", "topic", lambda n: ("", ""), [sink], []
    )
    outcome = Outcome("job", 1, "seamark verify", time.time())
    systems: Any = SimpleNamespace(storage=tmp_path / "storage")
    trial = Trial(workload, systems, outcome, lambda line: None)
    sink.follow(trial._take)
    assert asked.wait(60)
    trial._judge()
    assert not outcome.good
    assert "table: a reader has failed: ValueError('no number')" in outcome.failures

"""A reader that ends before it is told to: what it would have seen, nobody has. How: real threads
over a query that fails in them alone."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from seamark.verify.history import UNKNOWN
from seamark.verify.outcome import Outcome
from seamark.verify.readers import WatchedTable
from seamark.verify.trial import ROWS, Trial, Workload
from seamark.verify.workloads import numbered_by

NOTHING = np.zeros(0, np.int64), np.zeros(0, np.int64)


def test_a_value_without_a_number_is_a_phantom_and_ends_no_reader() -> None:
    number = numbered_by("id")
    for value in (b'{"id": 1e999}', b"Infinity", b"NaN", b"[]", b"\xff", b"", b'{"n": 1}'):
        assert number(b"", value) == (UNKNOWN, 1)
    assert number(b"", b'{"id": 7}') == (7, 1)


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

"""The state after a replay is that of the rows a sink was given, also where a replay computes other
values.

How: each row gets a random id, and the state collects the ids of a key. A driver is killed when an
epoch's state is stored, and its rows are not decided; the replay stores other ids. Every later row
of the sink must have all ids of the key's row before it, as many more as rows came.
"""

from __future__ import annotations

import json
import os
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.driver import Driver
from tests.spark.checkpoints.test_state_backends import BACKENDS

APP = Path(__file__).with_name("chance_app.py")
WINDOWS = APP.with_name("windows_app.py")
FILES, ROWS, KEYS = 5, 6, "ab"


@pytest.mark.parametrize(
    "failpoint", [pytest.param("pre-committed:2", marks=pytest.mark.chaos), "prepared:3"]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_state_follows_the_sinks_rows(tmp_path: Path, backend: str, failpoint: str) -> None:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        rows = [json.dumps({"k": k}) for k in KEYS for _ in range(ROWS)]
        (tmp_path / f"in/{number}.json").write_text("\n".join(rows))
    options = {"home": str(tmp_path), "config": BACKENDS[backend]}
    Driver(APP, options, tmp_path / "first.log", failpoint).die()
    # It replays the epoch, and dies in the next one. The third driver loads what it has stored.
    Driver(APP, options, tmp_path / "second.log", "pre-committed:2").die()
    third = Driver(APP, options, tmp_path / "third.log")
    assert third.wait(240) == 0, third.tail()
    with sqlite3.connect(tmp_path / "out.db") as database:
        found = database.execute("SELECT k, ids FROM t ORDER BY rowid").fetchall()
    for key in KEYS:
        states = [json.loads(ids) for k, ids in found if k == key]
        assert [len(ids) for ids in states] == [ROWS * (n + 1) for n in range(FILES)]
        for before, after in pairwise(states):
            assert set(before) < set(after), "the state is of an attempt whose rows nobody saw"


@pytest.mark.parametrize(
    "failpoints",
    [
        ["committed:2"],
        *(
            pytest.param(points, marks=pytest.mark.chaos)
            for points in (
                ["decided:2"], ["sink-committed:2"], ["prepared:3"], ["decided:3"],
                ["committed:2", "epoch-started"], ["committed:2", "prepared"],
                ["committed:2", "decided"], ["committed:2", "committed"],
            )
        ),
    ],
    ids="+".join,
)  # fmt: skip
def test_windows_that_were_due_at_a_kill_close_without_a_new_row(
    tmp_path: Path, failpoints: list[str]
) -> None:
    """Epoch 0 has the first row; epoch 1 the second, which raises the watermark; epoch 2 none."""
    (tmp_path / "in").mkdir()
    for number, second in enumerate((5, 105)):
        (tmp_path / f"in/{number}.json").write_text(json.dumps({"second": second}))
        os.utime(tmp_path / f"in/{number}.json", (1_700_000_000 + number,) * 2)
    options = {"home": str(tmp_path)}
    for number, failpoint in enumerate(failpoints):
        Driver(WINDOWS, options, tmp_path / f"{number}.log", failpoint).die()
    last = Driver(WINDOWS, options, tmp_path / "last.log")
    assert last.wait(240) == 0, last.tail()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert database.execute("SELECT * FROM t").fetchall() == [(0, 1)]

"""SIGTERM to a real program during its hour of waiting for a restart.

It must end within 30 s with exit code 0: committed rows still there, nothing open, and its
checkpoints kept although they are to be deleted on cancellation, since a signal cancels nothing.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.chaos.driver import Driver, wait_until
from tests.chaos.scenario import HERE
from tests.chaos.workload import read_column


def test_sigterm_during_the_delay_before_a_restart(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        lines = [json.dumps({"id": number * 5 + i}) for i in range(5)]
        file = tmp_path / f"in/{number}.json"
        file.write_text("\n".join(lines))
        os.utime(file, (time.time() - 10 + number,) * 2)  # Spark reads the oldest file first
    options = {
        "storage": str(tmp_path / "store"),
        "input": str(tmp_path / "in"),
        "database": str(tmp_path / "out.db"),
    }
    driver = Driver(HERE / "app_failing.py", options, tmp_path / "log")
    try:
        waits = "the user's own mistake; restart 1 in 3600.0 s"
        wait_until("the delay", lambda: waits in driver.text() or driver.returncode, 180)
        assert waits in driver.text(), driver.tail()
        driver.stop()
    finally:
        driver.kill_tree()
    assert "Traceback" not in driver.text().split(waits)[1], driver.tail()
    assert sorted(read_column(tmp_path / "out.db", "t", "id")) == list(range(5))
    staged = tmp_path / "out.db.seamark"
    assert not [p for p in staged.rglob("*") if p.is_file()], "a transaction is open"
    assert (tmp_path / "store/failing/epochs/0/committed.json").exists()

"""Files into a Delta table and SQLite in one job, killed on the way, and restored from an older
checkpoint.

One scenario as in `test_embedded.py`: driver after driver dies by its own SIGKILL at a failpoint.
Then a new job goes on from an old checkpoint of the first one, into the same table.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.chaos import checker
from tests.chaos.driver import wait_until
from tests.chaos.history import Pair
from tests.chaos.outputs import DeltaOutput, SQLiteOutput
from tests.chaos.scenario import SinksScenario

POINTS = [
    "sink-committed:1",  # the Delta table has the epoch, SQLite has not
    "prepared:2",  # flushed and never decided: its files must go
]


def test_killed_around_the_commits_and_restored_to_an_older_checkpoint(tmp_path: Path) -> None:
    delta = DeltaOutput(tmp_path)
    with SinksScenario(tmp_path, [delta, SQLiteOutput(tmp_path)]) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(4)
        scenario.drain(driver)
        driver.stop()
        checker.require_none(scenario.check())
        scenario.require_settled()

        # The epochs after the restored one run again, in a new lineage: not one of their rows may
        # be skipped because the log has a higher version of a Seamark transaction.
        rows = rows_by_epoch(scenario)
        restored = max(n for n in rows if sum(rows[later] for later in rows if later > n) >= 100)
        repeated = sum(count for epoch, count in rows.items() if epoch > restored)
        scenario.environment["SEAMARK_RESTORE"] = str(scenario.job_directory / f"epochs/{restored}")
        heir = scenario.start(name="heir")
        total = len(scenario.feeder.rows) + repeated
        wait_until("the heir has caught up", lambda: len(delta.rows()) >= total, 120, 0.2)
        heir.stop()
        seen = Counter(delta.rows())
        assert Counter(seen.values()) == {1: total - 2 * repeated, 2: repeated}
        assert set(seen) == {Pair(*row) for row in scenario.feeder.rows}
        assert delta.left_open() == []


def rows_by_epoch(scenario: SinksScenario) -> dict[int, int]:
    """Return how many rows each committed epoch of the first job brought into the Delta table."""
    found = {}
    for epoch in sorted(scenario.epochs_in("epochs")):
        directory = scenario.job_directory / "epochs" / str(epoch)
        if not (directory / "committed.json").exists():
            continue
        newest = max(directory.glob("prepared.*.json"), key=lambda p: int(p.name.split(".")[1]))
        sinks = json.loads(newest.read_text())["body"]["sinks"]
        found[epoch] = sinks.get("rows-to-delta", {"rows": 0})["rows"]
    return found

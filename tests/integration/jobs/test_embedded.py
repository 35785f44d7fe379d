"""Files to counts in SQLite and Parquet, killed on the way.

One scenario: files keep coming, driver after driver dies by its own SIGKILL at a failpoint (the JVM
with it) and the next one goes on; the last drains the input and is stopped by SIGTERM. Then both
sinks are read as other programs read them.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.scenario import EmbeddedScenario

POINTS = [
    "sink-committed:1",  # SQLite has the epoch, the files have not
    "recovery-committed:1",
    "ledger-committed:2",
]


def test_killed_between_two_embedded_sinks(tmp_path: Path) -> None:
    with EmbeddedScenario(tmp_path) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(5)
        scenario.finish(driver)

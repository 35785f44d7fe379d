"""Files into two tables, each refusing every fiftieth row, killed around the decision.

One scenario as in `test_embedded.py`. Each good row must be in both tables exactly once, and each
bad one once in the dead letters of each: of one a table, of the other JSON files.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.outputs import RefusingOutput
from tests.chaos.scenario import SinksScenario
from tests.servers.postgres import PostgresServer

POINTS = [
    "prepared:2",  # all four sinks are flushed, nothing is decided: all of it is run again
    "prepared-committed:1",  # decided; one table is committed, its dead letters are not
    "sink-committed:3",  # the second table is committed, its dead letters are not
]


def test_killed_around_the_decision(tmp_path: Path, postgres: PostgresServer) -> None:
    outputs = [RefusingOutput(tmp_path, postgres, mode) for mode in ("prepared", "staged")]
    # Each bad row is some statements more, and the first epoch has all rows from during the start.
    with SinksScenario(tmp_path, outputs, rate=150.0) as scenario:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(3)
        scenario.finish(driver)
        scenario.require_settled()
        assert f"sink {outputs[0].uid} refused" in driver.text()

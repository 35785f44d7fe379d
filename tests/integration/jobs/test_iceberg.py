"""Files into an Iceberg table and SQLite in one job, killed at each failpoint of the Iceberg sink's
on the way, while another program appends, compacts and expires.

One scenario as in `test_embedded.py`: driver after driver dies by its own SIGKILL.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos import checker
from tests.chaos.outputs import IcebergOutput, SQLiteOutput
from tests.chaos.scenario import SinksScenario
from tests.integration.iceberg.others import Others

POINTS = [
    "iceberg-commit-checked:1",
    "iceberg-manifests-written:2",
    "iceberg-committed:2",
    "prepared:2",  # flushed and never decided: its files must go
    "iceberg-aborted:1",  # by the successor of that one
]


def test_killed_at_each_point_while_others_write_compact_and_expire(tmp_path: Path) -> None:
    iceberg = IcebergOutput(tmp_path, partition_by=["bucket(2, key)"])
    others = Others(iceberg.catalog, "shop.clicks")
    with SinksScenario(tmp_path, [iceberg, SQLiteOutput(tmp_path)]) as scenario, others:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(4)
        scenario.drain(driver)
        driver.stop()
        others.leave()
        assert others.compactions > 0
        checker.require_none(scenario.check())
        scenario.require_settled()

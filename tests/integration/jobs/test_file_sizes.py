"""Files of a size: windows into files, rows into Delta and Iceberg, in one job killed at each point
on the way, while other programs compact both tables.

One scenario as in `test_embedded.py`. Each driver's first epoch has all its tasks, each later one
as few as its output needs, of the windows' state too.
"""

from __future__ import annotations

import threading
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from seamark.checkpoint.statistics_store import StatisticsStore
from seamark.files.local import LocalDirectory
from tests.chaos import checker
from tests.chaos.outputs import DeltaOutput, FilesOutput, IcebergOutput
from tests.chaos.scenario import SinksScenario
from tests.integration.iceberg.others import Others

POINTS = [
    "prepared:3",  # flushed and never decided: its files must go
    "delta-commit-checked:2",
    "delta-committed:3",  # recovery asks a compacted table
    "iceberg-committed:3",
    "file-renamed:1",
]
STATES = 6


class Compactor:
    """Another program: `OPTIMIZE` of a Delta table, again and again."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.removed = 0

    def __enter__(self) -> Compactor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            try:
                done = DeltaTable(self._path).optimize.compact()
                self.removed += done["numFilesRemoved"]
            except TableNotFoundError:
                continue
            except CommitFailedError as error:
                print("the job was faster:", error)


def test_killed_at_each_point_while_others_compact(tmp_path: Path) -> None:
    files, delta = FilesOutput(tmp_path, "counts"), DeltaOutput(tmp_path)
    iceberg = IcebergOutput(tmp_path)
    outputs = [files, delta, iceberg]
    for output in outputs:
        output.arguments["target_file_size"] = "1MB"
    others = Others(iceberg.catalog, "shop.clicks")
    compactor = Compactor(delta.arguments["path"])
    with SinksScenario(tmp_path, outputs, parallelism=STATES) as scenario, others, compactor:
        driver = scenario.die_at_each(POINTS)
        driver.wait_for_epochs(4)
        scenario.drain(driver)
        driver.stop()
        others.leave()
        compactor.__exit__()
        assert others.compactions > 0
        assert compactor.removed > 0
        checker.require_none(scenario.check())
        scenario.require_settled()
        statistics = StatisticsStore(LocalDirectory(scenario.job_directory)).read()
        subtasks = {
            sink.num_subtasks
            for checkpoint in statistics.history
            for sink in checkpoint.tasks
            if sink.kind == "sink"
        }
        assert max(subtasks) >= STATES > min(subtasks), subtasks

"""Decided rows that somebody deletes from the stage are written again from the spool, once.

How: a real server, and drivers without Spark, killed by kill -9 at each new point (`spool_kit.py`).
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.spool_kit import SpooledJob, lost_and_written_again
from tests.integration.sql.sink_kit import Place, batch, committer


def test_rows_deleted_from_the_stage(served: Place, tmp_path: Path) -> None:
    sink = served.sink(spool=True)
    committer(sink).close()
    lost_and_written_again(
        SpooledJob(tmp_path, sink),
        batch,
        served.visible,
        served.staged,
        lambda lost: served.drop(lost.handle),
    )

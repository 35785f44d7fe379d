"""``make chaos``: every failpoint of a driver, with the checkpoint on HDFS and on S3.

As `test_matrix.py`, with files as input and SQLite and Parquet as sinks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import checker
from tests.chaos.matrix import PROTOCOL_POINTS
from tests.chaos.scenario import EmbeddedScenario
from tests.chaos.test_matrix import kill_at_each
from tests.storage_servers import spark_configuration


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_every_failpoint(
    store: str, nth: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(store)
    base = f"s3a://{server.bucket}" if store == "s3" else server.uri
    with EmbeddedScenario(tmp_path, storage=f"{base}/matrix-{nth}-{tmp_path.name}") as scenario:
        if store == "s3":
            scenario.environment = spark_configuration(tmp_path / "conf", server)
        kill_at_each(scenario, PROTOCOL_POINTS, nth)
        last = scenario.start()
        last.wait_for_epochs(2, 120)
        scenario.drain(last, 300)
        last.stop()
        checker.require_none(scenario.check())

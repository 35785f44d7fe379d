"""Files into files on HDFS and S3, in one killed job.

One scenario as in `test_embedded.py`: drivers die by their own SIGKILL after the second file of an
epoch was published in one store or the other. Then the S3 server and the DataNode are killed with
-9 under the last driver. Both directories are read by listing, like any reader: each row must be
there exactly once, and neither a pending file nor an open upload may be left. The workers know S3
from the Spark session's settings alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.outputs import StoredFilesOutput
from tests.chaos.scenario import SinksScenario
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.storage_servers import spark_configuration

POINTS = ["file-renamed:2", "upload-completed:2"]


@pytest.mark.timeout(900)
def test_killed_within_and_between_the_stores(hdfs: LocalHdfs, s3: LocalS3, tmp_path: Path) -> None:
    outputs = [StoredFilesOutput(hdfs), StoredFilesOutput(s3, configured=False)]
    with SinksScenario(tmp_path, outputs, rate=200, interval="500ms") as scenario:
        scenario.environment = spark_configuration(tmp_path / "conf", s3)
        driver = scenario.die_at_each(POINTS, timeout_s=300)
        driver.wait_for_epochs(2, 180)
        s3.kill()
        hdfs.kill("datanode")
        s3.restart()
        hdfs.restart("datanode")
        scenario.finish(scenario.outlive(driver, 180), 300)
        scenario.require_settled()

"""Files to counts in SQLite and Parquet, with the checkpoint, state included, on HDFS, S3 and a
server with Google's interface.

One scenario a store: driver after driver dies by its own SIGKILL right before or after it has
written to the store; then the store's own servers are killed with -9 while the job runs, and come
back (not Google's, which has its objects in memory). The last driver drains the input and is
stopped by SIGTERM; both sinks are read as other programs read them.
`tests/chaos/test_storage_matrix.py` has every failpoint.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.chaos.driver import Driver, wait_until
from tests.chaos.scenario import EmbeddedScenario
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.storage_servers import spark_configuration

AWAY_S = 3.0


def go_on(scenario: EmbeddedScenario, driver: Driver) -> Driver:
    """Return a driver after its first commit: this one, or the next if this one has given up."""
    before = len(driver.epochs())
    wait_until(
        f"{driver} commits or ends",
        lambda: len(driver.epochs()) >= before + 2 or driver.returncode is not None,
        180,
    )
    if driver.returncode is None:
        return driver
    assert driver.returncode > 0, driver.tail()
    driver.kill_tree()
    driver = scenario.start()
    driver.wait_for_epochs(1, 120)
    return driver


@pytest.mark.timeout(900)
def test_on_hdfs(hdfs: LocalHdfs, tmp_path: Path) -> None:
    with EmbeddedScenario(tmp_path, storage=f"{hdfs.uri}/{tmp_path.name}") as scenario:
        driver = scenario.die_at_each(["prepared:1", "sealed:1"])
        driver.wait_for_epochs(2, 120)
        hdfs.kill("datanode")
        hdfs.kill("namenode")
        time.sleep(AWAY_S)
        hdfs.restart("namenode")
        hdfs.restart("datanode")
        driver = go_on(scenario, driver)
        scenario.finish(driver)


@pytest.mark.timeout(900)
def test_on_s3(s3: LocalS3, tmp_path: Path) -> None:
    with EmbeddedScenario(tmp_path, storage=f"s3a://{s3.bucket}/{tmp_path.name}") as scenario:
        scenario.environment = spark_configuration(tmp_path / "conf", s3)
        driver = scenario.die_at_each(["prepared:1", "decided:1"])
        driver.wait_for_epochs(2, 120)
        s3.kill()
        time.sleep(AWAY_S)
        s3.restart()
        driver = go_on(scenario, driver)
        scenario.finish(driver)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_on_googles(gcs: GcsServer, tmp_path: Path) -> None:
    with EmbeddedScenario(tmp_path, storage=f"gs://{gcs.bucket}/{tmp_path.name}") as scenario:
        scenario.environment = spark_configuration(tmp_path / "conf", gcs)
        driver = scenario.die_at_each(["prepared:1", "decided:1"])
        driver.wait_for_epochs(2, 120)
        scenario.finish(driver)

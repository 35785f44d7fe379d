"""Savepoints of both types on HDFS, S3 and a server with Google's interface, and on to another
file system.

How: a job with its checkpoints on the store joins and counts numbers; native and canonical
savepoints of it are taken there; jobs restored from them, on the store, on local disks and from
these on the store again, must show the same as a job without a stop.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.savepoints.record import SavepointType
from tests.spark.savepoints.test_savepoints import Numbers, declare, expected, shown
from tests.spark.storage.test_hadoop_files import STORES, base  # noqa: F401 - a fixture
from tests.threads import RunningJob

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
@pytest.mark.parametrize("store", STORES)
def test_both_types_there_and_elsewhere(
    spark: SparkSession,
    base: str,  # noqa: F811
    tmp_path: Path,
    backend: str,
) -> None:
    numbers, there = Numbers(tmp_path / "in"), f"{base}/store"
    numbers.add()
    first = RunningJob(declare(tmp_path, "first", numbers, storage=there, state_backend=backend))
    first.wait_for_epochs(1)
    native = first.job.savepoint(f"{base}/savepoints", type="native").result(300)
    assert native.startswith(base)
    numbers.add()
    first.wait_for_epochs(2)
    asked = first.job.stop_with_savepoint(f"{base}/savepoints")
    canonical = asked.result(300)
    first.join()
    assert shown(tmp_path, "first") == expected(2)
    assert sm.Savepoint(native).record.type is SavepointType.NATIVE

    # The native one goes on where it was, after its own epoch: the second file is its too.
    copied = declare(tmp_path, "copy", numbers, storage=there, state_backend=backend)
    copy = RunningJob(copied, restore=native)
    copy.wait_for_epochs(1)
    copy.end()
    assert shown(tmp_path, "copy") == {key: [20] for key in expected(1)}

    # The canonical one goes on on local disks, on another backend, and from there back.
    numbers.add()
    other = "hashmap" if backend == "rocksdb" else "rocksdb"
    local = declare(tmp_path, "local", numbers, state_backend=other)
    second = RunningJob(local, restore=canonical, parallelism=3)
    second.wait_for_epochs(1)
    asked = second.job.stop_with_savepoint(str(tmp_path / "savepoints"))
    of_local = asked.result(300)
    second.join()
    assert shown(tmp_path, "first", "local") == expected(3)
    numbers.add()
    back = declare(tmp_path, "back", numbers, storage=there, state_backend=backend)
    third = RunningJob(back, restore=of_local, parallelism=2)
    third.wait_for_epochs(1)
    third.end()
    assert shown(tmp_path, "first", "local", "back") == expected(4)

"""How: the start-up check against real servers: fit ones, and ones wrong in one way each.

The store must end as it began, and each error names the store and the remedy.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seamark as sm
from seamark.checkpoint.storage_check import DEADLINE_S, check_storage
from seamark.dev.java_server import free_ports
from seamark.model.errors import ConfigurationError, PreflightError
from seamark.spark.hadoop_files import HadoopFiles, open_files
from seamark.spark.session import file_manager_settings
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import LocalHdfs
from tests.servers.s3 import LocalS3
from tests.spark.storage.test_hadoop_files import reach
from tests.storage_servers import serving
from tests.weak_s3 import Weakness, WeakS3


def check(spark: SparkSession, uri: str) -> None:
    """Check within the deadline, whatever is wrong."""
    begun = time.monotonic()
    try:
        check_storage(open_files(spark, uri))
    finally:
        assert time.monotonic() - begun < DEADLINE_S + 60


def test_fit_stores_are_left_as_they_were(
    spark: SparkSession, hdfs: LocalHdfs, s3: LocalS3, gcs: GcsServer
) -> None:
    reach(spark, s3)
    reach(spark, gcs)
    for uri in (f"{hdfs.uri}/fit", f"s3a://{s3.bucket}/fit", f"gs://{gcs.bucket}/fit"):
        check(spark, uri)
        assert HadoopFiles(spark, uri).list("") == []


def test_a_condition_that_a_store_ignores_is_found(spark: SparkSession, gcs: GcsServer) -> None:
    """The server with Google's interface ignores the condition of a resumable upload."""
    reach(spark, gcs)
    spark.conf.set("fs.gs.outputstream.direct.upload.enable", "false")
    try:
        with pytest.raises(PreflightError, match="of 8 at once created the same file"):
            for _ in range(50):  # on a busy machine the others may look too late
                check(spark, f"gs://{gcs.bucket}/weak")
    finally:
        spark.conf.unset("fs.gs.outputstream.direct.upload.enable")


@pytest.mark.parametrize("weakness", [Weakness.IGNORES, Weakness.LOOKS_FIRST])
def test_an_s3_server_without_conditional_writes_is_refused(
    spark: SparkSession, weakness: Weakness
) -> None:
    for server in serving(lambda: LocalS3(signed=False)):
        with WeakS3(server.port, weakness) as weak:
            reach(spark, server, weak.endpoint)
            uri = f"s3a://{server.bucket}/weak"
            with pytest.raises(PreflightError, match="of 8 at once created the same file") as found:
                check(spark, uri)
            assert f"checkpoint storage {uri}: it is not fit" in str(found.value)
            assert "If-None-Match" in str(found.value)


def test_wrong_credentials(spark: SparkSession, s3: LocalS3) -> None:
    reach(spark, s3)
    spark.conf.set(f"fs.s3a.bucket.{s3.bucket}.secret.key", "wrong")
    with pytest.raises(PreflightError, match=f"s3a://{s3.bucket}/x.*credentials of one who may"):
        check(spark, f"s3a://{s3.bucket}/x")


def test_no_such_bucket(spark: SparkSession, s3: LocalS3) -> None:
    for key, value in s3.spark_settings().items():
        spark.conf.set(key.removeprefix("spark.hadoop.").replace(s3.bucket, "absent"), value)
    with pytest.raises(PreflightError, match=r"s3a://absent/x.*make what is missing"):
        check(spark, "s3a://absent/x")


def test_no_permission_on_hdfs(spark: SparkSession, hdfs: LocalHdfs) -> None:
    hdfs.webhdfs("PUT", "/closed", "MKDIRS", permission="755")
    with pytest.raises(PreflightError, match=r"/closed/x.*Permission denied.*let this user write"):
        check(spark, f"{hdfs.uri}/closed/x")


@pytest.mark.parametrize("scheme", ["hdfs", "s3a"])
def test_nobody_answers(spark: SparkSession, scheme: str, s3: LocalS3) -> None:
    (port,) = free_ports(1)
    reach(spark, s3, f"http://127.0.0.1:{port}")
    uri = f"hdfs://127.0.0.1:{port}/x" if scheme == "hdfs" else f"s3a://{s3.bucket}/x"
    with pytest.raises(PreflightError, match=f"{uri}.*check"):
        check(spark, uri)


def test_odd_schemes_get_a_clear_error(spark: SparkSession) -> None:
    with pytest.raises(PreflightError, match="nosuch://host/dir"):
        open_files(spark, "nosuch://host/dir")
    with pytest.raises(
        PreflightError, match=r"hdfs://no-such-host\.invalid/x: .*check the address"
    ):
        open_files(spark, "hdfs://no-such-host.invalid/x")


def test_rows_beside_a_checkpoint_need_a_client_of_the_workers(
    spark: SparkSession, gcs: GcsServer, tmp_path: Path
) -> None:
    reach(spark, gcs)
    storage = f"gs://{gcs.bucket}/rows"
    job = sm.Job("job", sm.CheckpointConfig(storage=storage))
    rows = job.source(sm.FileSource(str(tmp_path), "text", ending="latest"), "in")
    job.sink(rows, sm.WriteAheadSink.spark_format("text", {"path": str(tmp_path / "out")}), "out")
    with pytest.raises(ConfigurationError, match=rf"{storage}/job/.*out: rows cannot be kept here"):
        job.run()
    assert not (tmp_path / "out").exists()


def test_state_is_not_written_by_a_rename_that_keeps_the_old_file(spark: SparkSession) -> None:
    assert file_manager_settings(spark, "dbfs://host/x", stateful=False) == {}
    with pytest.raises(
        PreflightError, match=r"set spark\.hadoop\.fs\.AbstractFileSystem\.dbfs\.impl"
    ):
        file_manager_settings(spark, "dbfs://host/x", stateful=True)

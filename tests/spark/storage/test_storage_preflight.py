"""How: the start-up check against real servers: fit ones, and ones wrong in one way each.

The store must end as it began, and each error names the store and the remedy.
"""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from seamark.checkpoint.storage_check import DEADLINE_S, check_storage
from seamark.dev.java_server import free_ports
from seamark.model.errors import PreflightError
from seamark.runtime.hadoop_files import HadoopFiles, open_files
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
        assert time.monotonic() - begun < DEADLINE_S + 10


def test_hdfs_and_s3_are_fit_and_left_as_they_were(
    spark: SparkSession, hdfs: LocalHdfs, s3: LocalS3
) -> None:
    reach(spark, s3)
    for uri in (f"{hdfs.uri}/fit", f"s3a://{s3.bucket}/fit"):
        check(spark, uri)
        assert HadoopFiles(spark, uri).list("") == []


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
    with pytest.raises(PreflightError, match=r"s3://bucket/x: s3: .* write s3a://bucket/x"):
        open_files(spark, "s3://bucket/x")
    with pytest.raises(PreflightError, match="nosuch://host/dir"):
        open_files(spark, "nosuch://host/dir")
    with pytest.raises(
        PreflightError, match=r"hdfs://no-such-host\.invalid/x: .*check the address"
    ):
        open_files(spark, "hdfs://no-such-host.invalid/x")

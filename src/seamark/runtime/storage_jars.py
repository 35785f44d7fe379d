"""Finds jars for checkpoints on S3.

PySpark contains Spark's HDFS client, but not the S3 connector (S3A). S3A is hadoop-aws of exactly
PySpark's Hadoop version, with the AWS SDK it was built with. `jars.py` fetches the jars.
"""

from __future__ import annotations

import re
from pathlib import Path

from seamark.model.errors import MissingDependencyError
from seamark.runtime.jars import Request, pyspark_jars, resolve

AWS_SDK_VERSION = "2.35.4"
"""The version hadoop-aws 3.4.2 and 3.5 are built with."""


def hadoop_version() -> str:
    """Return the version of PySpark's Hadoop client."""
    for jar in pyspark_jars().glob("hadoop-client-api-*.jar"):
        if version := re.fullmatch(r"hadoop-client-api-(\d[\d.]*)\.jar", jar.name):
            return version[1]
    raise MissingDependencyError(
        f"{pyspark_jars()} has no hadoop-client-api jar; reinstall PySpark: "
        "pip install --force-reinstall 'pyspark==4.2.*'"
    )


def s3a_jars() -> list[Path]:
    """Return the S3A connector for `spark.jars` (20 MB, fetched at the first call).

    hadoop-aws asks for the SDK's bundle of all Amazon services, 690 MB; three parts of the SDK are
    enough. Raises `MissingDependencyError` when there is no Java or the jars cannot be fetched.
    """
    version = hadoop_version()
    sdk = "software.amazon.awssdk"
    return resolve(
        f"s3a-{version}",
        Request(
            (
                f"org.apache.hadoop:hadoop-aws:{version}",
                *(f"{sdk}:{part}:{AWS_SDK_VERSION}" for part in ("s3", "s3-transfer-manager")),
                f"{sdk}:sts:{AWS_SDK_VERSION}",
            ),
            excludes=(f"{sdk}:bundle", "org.slf4j:*"),  # Spark has its own SLF4J
        ),
    )

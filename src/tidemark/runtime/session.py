"""The Spark session that a job runs in: the caller's, or one made with what Tidemark needs."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Container
from typing import Any

from pyspark import SparkConf
from pyspark.sql import SparkSession
from pyspark.version import __version__ as spark_version

from tidemark.api.config import CheckpointConfig
from tidemark.model import failpoints
from tidemark.model.errors import (
    MissingDependencyError,
    PreflightError,
    TidemarkError,
    UserError,
)
from tidemark.runtime import jars, storage_jars

log = logging.getLogger(__name__)

LOCAL_MASTER = "local[*,4]"
"""All cores; a task that fails is tried four times, as on a cluster (plain local[*] never does)."""

_KAFKA_SOURCE_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_RENAMING_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_SILENT_FILE_MANAGER = ".AbortableStreamBasedCheckpointFileManager"


def spark_session(name: str, storage: object = "") -> SparkSession:
    """Return the active session, or make one: local unless spark-submit says otherwise.

    `storage` is where checkpoints lie: a session that is made gets the jars that its scheme needs.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = _make_session(name, str(storage))
    if not hasattr(spark, "_jsparkSession"):
        raise UserError(
            "this is a Spark Connect session; Tidemark runs in the driver: start Spark without "
            "a remote address"
        )
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    if pid not in failpoints.companions:
        failpoints.companions.append(pid)
    return spark


def _make_session(name: str, storage: str) -> SparkSession:
    jars.find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf()
    defaults = {
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.authenticate.socketTimeout": "60s",
        "spark.python.unix.domain.socket.enabled": "true",  # cheaper than TCP to the workers
        # Spark's stream thread overflows a small stack when a query is stopped.
        "spark.driver.extraJavaOptions": "-Xss16m",
        "spark.sql.streaming.stopTimeout": "20s",
    }
    if not conf.contains("spark.master"):
        defaults["spark.master"] = LOCAL_MASTER
        defaults["spark.driver.host"] = "127.0.0.1"
        defaults["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    for key, value in defaults.items():
        conf.setIfMissing(key, value)
    if not conf.contains("spark.jars") and not conf.contains("spark.jars.packages"):
        found = _kafka_jars()
        if storage.startswith("s3a:"):
            found += [str(path) for path in storage_jars.s3a_jars()]
        if found:
            conf.set("spark.jars", ",".join(found))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    if "spark.log.level" not in dict(conf.getAll()):
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def _kafka_jars() -> list[str]:
    """Return the connector's jars if the Kafka extra is installed; they can't be added later."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return []
    try:
        return [str(path) for path in jars.spark_kafka_jars(spark_version)]
    except TidemarkError as error:
        log.warning("Spark's Kafka connector is not available: %s", error)
        return []


def require_format(spark: SparkSession, format_: str) -> None:
    """Make sure that the session can read `format_`; raises MissingDependencyError if not."""
    if format_ == "kafka":
        try:
            spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(
                _KAFKA_SOURCE_CLASS
            )
        except Exception as error:
            raise MissingDependencyError(
                "this Spark session has no Kafka connector; install tidemark[kafka] and let "
                "Tidemark make the session, or start Spark with --packages "
                f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
            ) from error
    elif format_ == "tidemark-datagen":
        from tidemark.runtime import datagen

        datagen.register(spark)


def require_storage(spark: SparkSession, uri: str) -> None:
    """Make sure that the session can reach the file system of `uri`; raises
    MissingDependencyError, or PreflightError for a scheme that Hadoop has under another name."""
    scheme = uri.split(":", 1)[0]
    if scheme in ("s3", "s3n"):
        raise PreflightError(
            f"checkpoint storage {uri}: {scheme}: is the name of connectors that are gone; write "
            f"s3a:{uri.split(':', 1)[1]}"
        )
    if scheme == "s3a":
        try:
            spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(
                _S3A_CLASS
            )
        except Exception as error:
            version = storage_jars.hadoop_version()
            raise MissingDependencyError(
                f"checkpoint storage {uri}: this Spark session has no S3 connector; let Tidemark "
                "make the session (none may be active when the job is declared), or start Spark "
                f"with --packages org.apache.hadoop:hadoop-aws:{version}"
            ) from error


def prefer_renaming_file_manager(spark: SparkSession, uri: str) -> None:
    """Let Spark write its own checkpoint files by plain rename where that is atomic.

    It saves some 50 ms an epoch on local disks and HDFS. Left alone if the user has set it, and on
    object stores, where a rename is a copy.
    """
    chosen = spark.conf.get(_FILE_MANAGER, None)
    if uri.split(":", 1)[0] in ("file", "hdfs") and chosen is None:
        spark.conf.set(_FILE_MANAGER, _RENAMING_FILE_MANAGER)
    if (chosen or "").endswith(_SILENT_FILE_MANAGER):
        log.warning(
            "%s is %s, which only logs a write that has failed: Spark can go on without a decision "
            "that it believes to be stored, and the next start then stops with "
            "DecisionMissingError; leave the setting out",
            _FILE_MANAGER, chosen,
        )  # fmt: skip


def query_settings(config: CheckpointConfig, given: Container[str]) -> dict[str, str]:
    """Return the Spark settings that make a query keep as many checkpoints as `config` says, and
    end as it says. A setting that is not among those `given` is the session's."""
    settings = {}
    if "num_retained" in given:
        # A restart needs the last two: the epoch that is planned, and the one decided before it.
        settings["spark.sql.streaming.minBatchesToRetain"] = str(max(config.num_retained, 2))
    if "checkpoints_after_tasks_finish" in given:
        final = str(config.checkpoints_after_tasks_finish).lower()
        settings["spark.sql.streaming.noDataMicroBatches.enabled"] = final
    return settings


def spark_schema(dataframe: Any) -> tuple[tuple[str, str], ...]:
    """Return (name, simpleString of the type) of each column."""
    return tuple((f.name, f.dataType.simpleString()) for f in dataframe.schema.fields)

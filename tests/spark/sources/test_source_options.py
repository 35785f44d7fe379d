"""Mistakes in a source's options are told when it is declared, and not by the running query.

How: real readers of Spark's, with one mistake each. Kafka's connector connects to nothing here;
tests/integration/kafka/test_source_start.py has a broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import seamark as sm
from seamark.spark.session import require_format
from seamark.spark.source_options import refused_options, unknown_options

FORMATS = ("json", "csv", "text", "parquet", "orc", "xml")


def job(tmp_path: Path) -> sm.Job:
    return sm.Job("mistaken", sm.CheckpointConfig(storage=f"file://{tmp_path}/store"))


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., sm.FileSource]:
    (tmp_path / "in").mkdir()

    def make(format_: str = "json", **options: Any) -> sm.FileSource:
        options = {"rowTag": "r", **options} if format_ == "xml" else options
        return sm.FileSource(str(tmp_path / "in"), format_, "value STRING", options=options)

    return make


def kafka(spark: SparkSession, **options: str) -> DataFrame:
    require_format(spark, "kafka")
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "clicks", **options}
    return spark.readStream.format("kafka").options(**given).load()


@pytest.mark.parametrize("format_", FORMATS)
def test_what_spark_documents_is_taken(
    tmp_path: Path, files: Callable[..., sm.FileSource], format_: str
) -> None:
    """Also what it gives on to Hadoop."""
    options = {
        "maxFilesPerTrigger": 5, "MAXFILEAGE": "1d", "latestFirst": True, "fileNameOnly": False,
        "cleanSource": "archive", "sourceArchiveDir": f"{tmp_path}/old", "maxCachedFiles": 1,
        "pathGlobFilter": "*.x", "recursiveFileLookup": True, "ignoreMissingFiles": False,
        "timeZone": "UTC", "fs.s3a.endpoint": "http://s3", "compression": "gzip",
    }  # fmt: skip
    job(tmp_path).source(files(format_, **options), "in")


@pytest.mark.parametrize(
    ("format_", "options", "says"),
    [
        ("json", {"maxFilePerTrigger": 1}, "no option 'maxFilePerTrigger'.* 'maxfilespertrigger'"),
        ("csv", {"heder": True}, "no option 'heder' for it; did you mean 'header'"),
        ("text", {"header": True}, "no option 'header'"),
        ("json", {"maxFilesPerTrigger": "many"}, "Spark refuses .*maxFilesPerTrigger.* integer"),
        ("json", {"maxFilesPerTrigger": 0}, "Spark refuses .*maxFilesPerTrigger.* positive"),
        ("json", {"latestFirst": "maybe"}, "Spark refuses .*latestFirst"),
        ("json", {"cleanSource": "archve"}, "Spark refuses .*archve"),
        ("json", {"cleanSource": "archive"}, "Spark refuses .*sourceArchiveDir"),
        (
            "json",
            {"cleanSource": "archive", "sourceArchiveDir": "{path}/old"},
            "Spark refuses cleanSource 'archive': .*Base archive path",
        ),
        ("csv", {"header": "maybe"}, "Spark refuses header 'maybe': "),
        ("csv", {"quote": "ab"}, "Spark refuses quote 'ab': "),
        ("csv", {"encoding": "nope"}, "Spark refuses encoding 'nope': "),
        ("json", {"multiLine": "maybe"}, "Spark refuses multiLine 'maybe': "),
        ("json", {"timeZone": "Mars"}, "Spark refuses timeZone 'Mars': "),
        ("xml", {"rowTag": ""}, "Spark refuses rowTag '': |Spark refuses its options: .*rowTag"),
        ("json", {"mode": "FAILFST"}, "mode 'FAILFST': it would be PERMISSIVE"),
    ],
)
def test_a_mistake_at_files(
    tmp_path: Path,
    files: Callable[..., sm.FileSource],
    format_: str,
    options: dict[str, Any],
    says: str,
) -> None:
    texts = {n: v.format(path=tmp_path / "in") for n, v in options.items() if isinstance(v, str)}
    with pytest.raises(sm.ConfigurationError, match=f"source 'in': {format_} files in .*{says}"):
        job(tmp_path).source(files(format_, **options | texts), "in")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger 'many'"),
        ({"minOffsetsPerTrigger": "few"}, "minOffsetsPerTrigger 'few'"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay 'soon'"),
        ({"fetchOffset.numRetries": "x"}, "fetchOffset.numRetries 'x'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss 'maybe'"),
        ({"startingOffsets": "erliest"}, "startingOffsets 'erliest'"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger '0'"),
    ],
)
def test_a_value_that_spark_refuses_at_kafka(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    frame = kafka(spark, **options)
    assert says in refused_options(frame)
    with pytest.raises(sm.ConfigurationError, match=re.escape(says)):
        job(tmp_path).source(frame, "in", replayable=True)
    at = {"checkpointLocation": f"{tmp_path}/query"}
    with pytest.raises(sm.ConfigurationError, match=f"write_stream: .*{re.escape(says)}"):
        sm.write_stream(frame).format("noop").options(**at).start()
    assert not (tmp_path / "query").exists()


def test_options_of_kafka_source(spark: SparkSession, tmp_path: Path) -> None:
    def declare(**given: Any) -> None:
        job(tmp_path).source(sm.KafkaSource("127.0.0.1:1", **given), "in")

    for given, says in (
        (
            {"pattern": "clicks-(.*"},
            "like clicks-.*Spark refuses .*Unclosed group .* of the pattern",
        ),
        ({"options": {"minPartitions": 0}}, "minPartitions must be positive"),
        ({"options": {"maxOffsetPerTrigger": 5}}, "no option .*'maxoffsetspertrigger'"),
    ):
        settings: dict[str, Any] = given if "pattern" in given else {"topics": "clicks", **given}
        with pytest.raises(sm.ConfigurationError, match=f"source 'in': Kafka topics .*{says}"):
            declare(**settings)
    declare(topics="clicks", options={"maxOffsetsPerTrigger": 5, "kafkaConsumer.pollTimeoutMs": 9})


def test_options_that_spark_would_pass_over(spark: SparkSession, tmp_path: Path) -> None:
    """Those of a plain stream are warned of, and so are names that a client's class may know."""
    files = spark.readStream.schema("a INT").option("maxFilePerTrigger", 1)
    frames = {
        "kafka": kafka(spark, maxOffsetPerTrigger="5", **{"kafka.max.poll.record": "5"}),
        "rate": spark.readStream.format("rate").option("rowPerSecond", "5").load(),
        "files": files.json(str(tmp_path)),
    }
    declared = job(tmp_path)
    for uid, frame in frames.items():
        declared.source(frame, uid, replayable=True)
        declared.sink(frame, sm.WriteAheadSink.foreach_batch(lambda *_: None), f"{uid}-out")
    found = [f for f in declared.report().findings if f.code.name == "SC006"]
    assert [(f.subject, f.found.split("'")[1], f.remedy.split("'")[1]) for f in found] == [
        ("source `kafka`", "maxOffsetPerTrigger", "maxoffsetspertrigger"),
        ("source `kafka`", "kafka.max.poll.record", "kafka.max.poll.records"),
        ("source `rate`", "rowPerSecond", "rowspersecond"),
        ("source `files`", "maxFilePerTrigger", "maxfilespertrigger"),
    ]


def test_a_source_of_another_project_is_left_alone(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load()
    assert refused_options(frame) == ""
    assert list(unknown_options(frame)) == []

"""What a broker tells of a source before its job begins: the partitions and topics that are there.

How: jobs of KafkaSource, and queries of Spark's own streams, against a real broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.spark.session import require_format, spark_session

Topic = Callable[..., str]


def job(tmp_path: Path, kafka: LocalKafka, **source: Any) -> sm.Job:
    declared = sm.Job("starts", sm.CheckpointConfig(storage=f"file://{tmp_path}/store"))
    read = declared.source(sm.KafkaSource(kafka.bootstrap_servers, ending="latest", **source), "in")
    values = read.selectExpr("CAST(value AS STRING) AS value")
    declared.sink(values, sm.FileSink(str(tmp_path / "out"), "json"), "out")
    return declared


def plain(kafka: LocalKafka, **options: str) -> DataFrame:
    spark = spark_session("test-source-start")
    require_format(spark, "kafka")
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return spark.readStream.format("kafka").options(**servers, **options).load()


def start(tmp_path: Path, frame: DataFrame) -> None:
    at = f"{tmp_path}/store/query"
    writer = sm.write_stream(frame).format("noop").option("checkpointLocation", at)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_starting_offsets_are_those_of_the_partitions_there(
    tmp_path: Path, kafka: LocalKafka, topic: Topic
) -> None:
    name = topic(2)
    for partitions, says in (
        ({0: 0}, rf"the starting offsets of source 'in' lack {name}/1; give one to every"),
        ({0: 0, 1: -2, 7: 0}, rf"name the unread {name}/7; give"),
    ):
        with pytest.raises(sm.ConfigurationError, match=says):
            job(tmp_path, kafka, topics=name, starting_offsets={name: partitions}).run()
    offsets = json.dumps({name: {"1": 0}})
    for way in ({"subscribe": name}, {"subscribePattern": f"{name}.*"}):
        frame = plain(kafka, startingOffsets=offsets, **way)
        with pytest.raises(sm.ConfigurationError, match=rf"source 'source-0' lack {name}/0; give"):
            start(tmp_path, frame)
    assert not (tmp_path / "out").exists()
    start(tmp_path, plain(kafka, startingOffsets=offsets, assign=json.dumps({name: [1]})))


def test_a_job_that_goes_on_needs_none_for_a_new_partition(
    tmp_path: Path, kafka: LocalKafka, topic: Topic
) -> None:
    name = topic(1)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for partition in (0, 1):
        if partition:
            admin.create_partitions([NewPartitions(name, 2)])[name].result(60)
            while len(admin.list_topics(name).topics[name].partitions) < 2:
                time.sleep(0.05)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(name, str(partition), partition=partition)
        assert producer.flush(30) == 0
        job(tmp_path, kafka, topics=name, starting_offsets={name: {0: -2}}).run()
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.open()]
    assert sorted(json.loads(line)["value"] for line in lines) == ["0", "1"]


def test_a_pattern_without_a_topic_is_warned_of(tmp_path: Path, kafka: LocalKafka) -> None:
    findings = job(tmp_path, kafka, pattern="no-such-.*").report(preflight=True).findings
    (found,) = [f for f in findings if f.subject == "source `in`"]
    assert (found.code.name, found.weight.value) == ("SV004", "warning")
    assert "matches the pattern 'no-such-.*', so nothing is read" in found.found


def test_a_plain_stream_without_its_topic_is_refused_at_the_start(
    tmp_path: Path, kafka: LocalKafka
) -> None:
    says = r"source `source-0`: topic 'cliks' does not exist at .*create it"
    with pytest.raises(sm.ConfigurationError, match=says):
        start(tmp_path, plain(kafka, subscribe="cliks"))
    assert not (tmp_path / "store/query").exists()

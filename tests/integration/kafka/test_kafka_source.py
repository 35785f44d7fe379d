"""KafkaSource on a real broker: its start, its filters, its topics.

Rows with known timestamps are produced, then read in one bounded run of Spark into memory. No sink
of Seamark's is involved. The offsets told to a consumer group are in test_group_offsets.py.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.sources.kafka import KafkaSource
from seamark.spark.session import require_format, spark_session

NOW_MS = int(time.time()) * 1000


@pytest.fixture
def filled(kafka: LocalKafka, topic: Callable[..., str]) -> str:
    """A topic: in partition 0 the rows a, b, c, a second apart; in partition 1 an old one."""
    name = topic(2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for second, value in enumerate("abc"):
        producer.produce(name, value, partition=0, timestamp=NOW_MS + second * 1000)
    producer.produce(name, "old", partition=1, timestamp=NOW_MS - 60_000)
    assert producer.flush(30) == 0
    return name


def read(tmp_path: Path, source: KafkaSource) -> list[str]:
    reader = source.reader()
    spark = spark_session("test-kafka-source")
    require_format(spark, "kafka")
    found: list[str] = []
    query = (
        spark.readStream.format(reader.format).options(**reader.options).load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.option("checkpointLocation", str(tmp_path / uuid.uuid4().hex))
        .foreachBatch(lambda frame, _: found.extend(row["value"] for row in frame.collect()))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    return sorted(found)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", ["a", "b", "c", "old"]),
        ("latest", []),
        (datetime.fromtimestamp(NOW_MS / 1000 + 1, timezone.utc), ["b", "c"]),
        (datetime.fromtimestamp(NOW_MS / 1000 + 1, timezone.utc).isoformat(), ["b", "c"]),
        ({0: 2, 1: -2}, ["c", "old"]),
        ({0: -1, 1: 0}, ["old"]),
    ],
    # Names of their own: a time in one would differ between the processes of pytest-xdist.
    ids=["earliest", "latest", "time", "time-as-text", "offsets", "ends"],
)
def test_it_starts_where_it_is_told(
    kafka: LocalKafka, filled: str, tmp_path: Path, start: Any, expected: list[str]
) -> None:
    offsets = {filled: start} if isinstance(start, dict) else start
    source = KafkaSource(
        kafka.bootstrap_servers, topics=filled, starting_offsets=offsets, ending="latest"
    )
    assert read(tmp_path, source) == expected


def test_it_leaves_out_what_was_aborted_unless_told_otherwise(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    for value, commit in (("taken back", False), ("kept", True)):
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{name}-{commit}"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(name, value)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    servers = kafka.bootstrap_servers
    assert read(tmp_path, KafkaSource(servers, name)) == ["kept"]
    careless = KafkaSource(servers, name, isolation_level="read_uncommitted")
    assert read(tmp_path, careless) == ["kept", "taken back"]


def test_a_pattern_takes_every_topic_that_matches(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    names = [topic(1), topic(1)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for name in names:
        producer.produce(name, name)
    producer.produce(topic(1), "other")
    assert producer.flush(30) == 0
    pattern = f"({names[0]}|{names[1]})"
    source = KafkaSource(kafka.bootstrap_servers, pattern=pattern, group_id="patterns")
    assert read(tmp_path, source) == sorted(names)


def test_what_kafka_says_of_a_groups_offsets_is_shown_and_not_py4js_words(
    kafka: LocalKafka,
) -> None:
    spark = spark_session("test-kafka-source")
    require_format(spark, "kafka")
    source = KafkaSource(kafka.bootstrap_servers, "clicks", group_id="g")
    committer = source.create_offset_committer(spark._jvm)
    assert committer is not None
    with pytest.raises(OSError, match=r"group g: .*UnknownTopicOrPartitionException"):
        committer.commit({"no-such-topic": {"0": 5}})
    committer.close()


def test_another_topic_before_the_first_decision_is_told(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The failed first epoch is planned, and runs again from the offsets of its plan."""
    first, second = topic(1), topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(first, "1", partition=0)
    producer.produce(second, "2", partition=0)
    assert producer.flush(30) == 0

    def run(name: str, *, failing: bool = False) -> None:
        job = sm.Job("other-topic", sm.CheckpointConfig(storage=str(tmp_path / "store")))
        source = sm.KafkaSource(kafka.bootstrap_servers, topics=name, ending="latest")
        value = F.when(F.lit(failing), F.raise_error(F.lit("planted"))).otherwise(F.col("value"))
        rows = job.source(source, uid="in").select(value.cast("string").alias("value"))
        job.sink(rows, sm.FileSink(str(tmp_path / "out"), format="json"), uid="out")
        job.run()

    with pytest.raises(StreamingQueryException, match="planted"):
        run(first, failing=True)
    with pytest.raises(sm.UserError, match=f"is at offsets of topic '{first}', which the program"):
        run(second)
    run(first)
    lines = [path.read_text() for path in (tmp_path / "out").rglob("*.json")]
    assert [json.loads(line) for line in lines] == [{"value": "1"}]


def test_rows_deleted_before_they_were_read_end_the_job_by_name(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Only a source that is told so goes on without them."""
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def produce(*values: int) -> None:
        for value in values:
            producer.produce(name, str(value), partition=0)
        assert producer.flush(30) == 0

    def run(**options: str) -> list[int]:
        job = sm.Job("deleted", sm.CheckpointConfig(storage=str(tmp_path / "store")))
        source = sm.KafkaSource(
            kafka.bootstrap_servers, topics=name, ending="latest", options=options
        )
        rows = job.source(source, uid="in").selectExpr("CAST(value AS STRING) AS value")
        job.sink(rows, sm.FileSink(str(tmp_path / "out"), format="json"), uid="out")
        job.run()
        lines = (path.read_text() for path in (tmp_path / "out").rglob("*.json"))
        return sorted(int(json.loads(row)["value"]) for text in lines for row in text.splitlines())

    produce(0, 1, 2)
    assert run() == [0, 1, 2]
    produce(3, 4, 5, 6)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(name, 0, 5)]).values():
        deleted.result(60)
    with pytest.raises(sm.RowsDeletedError, match=rf"\b3\b.* {name}-0.*failOnDataLoss") as refused:
        run()
    assert "Traceback" not in str(refused.value)
    assert run(failOnDataLoss="false") == [0, 1, 2, 5, 6]

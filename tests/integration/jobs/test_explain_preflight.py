"""How: a program from Kafka into Kafka and PostgreSQL, as a user makes it, is explained with
`--preflight` against real servers, first with mistakes at each server, then without. Before and
after, the servers hold the same topics, groups, tables and transactions."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.spark.session import spark_session
from tests.servers.postgres import PostgresServer

Topic = Callable[..., str]
PROGRAM = """
import seamark as sm

class Changes(sm.PostgresSink):
    output_modes = ("append", "update")

SERVERS = {servers!r}
checkpoints = sm.CheckpointConfig(
    storage={storage!r}, interval="1s", timeout="1min", tolerated_downtime="5min"
)
job = sm.Job("asked", checkpoints)
clicks = job.source(sm.KafkaSource(SERVERS, topics={clicks!r}), uid="clicks")
clicks.sparkSession.conf.set("spark.sql.shuffle.partitions", {partitions})
counts = job.uid(clicks.groupBy("value").count(), "counts")
job.sink(
    counts.selectExpr("CAST(value AS string) AS value"),
    sm.KafkaSink(
        SERVERS, topic={out!r}, transactional_id_prefix={out!r}, transaction_timeout={timeout!r}
    ),
    uid="out",
)
job.sink(
    counts.selectExpr("CAST(value AS string) AS word", "count"),
    Changes({url!r}, table={table!r}, mode="prepared", create_table=False),
    uid="table",
)
if __name__ == "__main__":
    job.run()
"""


def explained(tmp_path: Path, **values: Any) -> tuple[int, dict[str, Any], str]:
    app = tmp_path / "app.py"
    program = PROGRAM.replace('"asked", checkpoints', '"asked", checkpoints, output_mode="update"')
    app.write_text(program.format(storage=str(tmp_path / "store"), **values))
    told = subprocess.run(
        [sys.executable, "-m", "seamark", "explain", "--preflight", "--json", str(app)],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert told.stdout, told.stderr
    return told.returncode, json.loads(told.stdout)["asked"], told.stdout + told.stderr


def holdings(kafka: LocalKafka, postgres: PostgresServer) -> list[Any]:
    """Return what the servers hold, as far as a look could change it."""
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        topics = sorted(topic["name"] for topic in admin.describe_topics())
        groups = sorted(group["group_id"] for group in admin.list_groups())
        transactions = sorted(str(one) for one in admin.list_transactions())
    finally:
        admin.close()
    tables = postgres.execute("SELECT oid, relname FROM pg_class ORDER BY oid")
    prepared = postgres.execute("SELECT gid FROM pg_prepared_xacts")
    return [topics, groups, transactions, tables, prepared]


@pytest.fixture
def brief(kafka: LocalKafka, topic: Topic) -> str:
    """A topic that keeps its rows for a minute."""
    name = f"{topic()}-brief"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    made = NewTopic(name, 2, 1, config={"retention.ms": "60000"})
    admin.create_topics([made])[name].result(300)
    return name


def codes(report: dict[str, Any], severity: str) -> set[tuple[str, str]]:
    return {
        (one["code"], one["subject"].split(":")[0].replace("'", "`"))
        for one in report["findings"]
        if one["severity"] == severity
    }


def test_what_the_real_servers_lack_is_found_and_they_are_left_alone(
    tmp_path: Path, kafka: LocalKafka, postgres: PostgresServer, topic: Topic, brief: str
) -> None:
    postgres.execute("CREATE TABLE IF NOT EXISTS words (word text, count bigint)")
    at = {"servers": kafka.bootstrap_servers, "url": postgres.url()}
    before = holdings(kafka, postgres)
    code, report, text = explained(
        tmp_path,
        clicks=brief,
        out="no-such-topic",
        timeout="1h",
        table="no_such_table",
        partitions=1000,
        **at,
    )
    assert code == 2
    assert codes(report, "error") == {
        ("SV004", "sink `out`"),
        ("KF005", "sink `out`"),
        ("SV004", "sink `table`"),
    }
    assert ("SC004", "source `clicks`") in codes(report, "warning")
    assert ("PG002", "sink `table`") in codes(report, "warning")  # 1,000 tasks of two epochs
    assert holdings(kafka, postgres) == before
    out = topic()
    before = holdings(kafka, postgres)
    code, report, text = explained(
        tmp_path, clicks=topic(), out=out, timeout="10min", table="words", partitions=2, **at
    )
    assert code == 0, text
    assert codes(report, "error") == set()
    assert report["asked"]
    assert ("KF006", "sink `out`") in codes(report, "warning")  # one broker: one replica
    assert ("SC004", "source `clicks`") not in codes(report, "warning")
    added = {name for name in holdings(kafka, postgres)[0] if name not in before[0]}
    assert len(added) == 1, added  # the topic made here
    assert holdings(kafka, postgres)[1:] == before[1:]


def test_a_source_without_its_topic_is_refused_at_the_start(
    tmp_path: Path, kafka: LocalKafka
) -> None:
    spark_session("mistyped")
    job = sm.Job("mistyped", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    rows = job.source(sm.KafkaSource(kafka.bootstrap_servers, topics=["cliks"]), uid="clicks")
    job.sink(rows.select("value"), sm.FileSink(str(tmp_path / "out"), format="parquet"), "out")
    with pytest.raises(
        sm.ConfigurationError, match=r"source `clicks`: topic 'cliks' does not exist at .*create it"
    ):
        job.run()
    assert not (tmp_path / "store").exists()


def test_a_topic_too_short_of_memory_is_warned_of_at_the_start(
    tmp_path: Path, kafka: LocalKafka, brief: str, caplog: pytest.LogCaptureFixture
) -> None:
    spark_session("brief")
    job = sm.Job("brief", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    source = sm.KafkaSource(kafka.bootstrap_servers, topics=brief, ending="latest")
    rows = job.source(source, uid="clicks")
    job.sink(rows.select("value"), sm.FileSink(str(tmp_path / "out"), format="parquet"), "out")
    with caplog.at_level(logging.WARNING, "seamark"):
        job.run()
    (warned,) = [r.getMessage() for r in caplog.records if "SC004" in r.getMessage()]
    assert f"topic '{brief}' keeps rows for 60s, and the job may be down for 86400s" in warned
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, brief)
    assert admin.describe_configs([resource])[resource].result(20)["retention.ms"].value == "60000"

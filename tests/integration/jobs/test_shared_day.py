"""How: two sinks, each with columns and a filter of its own, of one stream of sessions, through a
job's whole life by the command line: killed, stopped with a savepoint, restored with the sinks in
the other order, onto another backend and another number of partitions, killed again, drained. In
the end a read_committed reader of Kafka sees each session once, and SQLite holds each once.

Rows come in bursts of twenty with a pause of as long, so the sessions are known beforehand.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seamark.dev.kafka import LocalKafka
from tests.integration.kafka.sink_kit import records
from tests.spark.operations.test_operators_day import Site

PROGRAM = """
import sys
import seamark as sm
from pyspark.sql import functions as F
from seamark.sources.fields import EventTime, Sequence

name, servers, topic, *order = sys.argv[1:] or ("one", "localhost:9092", "sessions")
job = sm.Job(name, sm.CheckpointConfig(interval="2s", savepoint_dir="savepoints"))
fields = {"at": EventTime(), "row": Sequence()}
rows = job.source(sm.DatagenSource(rows_per_second=100, fields=fields), uid="rows")
bursts = rows.withWatermark("at", "1 second").filter("(row DIV 20) % 2 = 0")

def sessions():
    window = F.session_window("at", "100 milliseconds")
    return bursts.groupBy(window, (F.col("row") % 2).alias("k")).agg(
        F.min("row").alias("first"), F.count("*").alias("n"))

shared = job.uid(sessions(), "sessions")
outputs = {
    "kafka": (
        shared.selectExpr("CAST(k AS STRING) AS key", "to_json(struct(k, first, n)) AS value"),
        sm.KafkaSink(servers, topic=topic, transactional_id_prefix=topic),
    ),
    "sqlite": (  # another Python object, a filter
        sessions().filter("n > 0").select("k", "first", "n"),
        sm.SQLiteSink("sessions.db", table="sessions"),
    ),
}
for uid in sorted(outputs, reverse="swapped" in order):
    job.sink(*outputs[uid], uid=uid)
if __name__ == "__main__":
    job.run()
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, PROGRAM)
    yield made
    made.close()


def test_each_session_is_in_both_sinks_once(
    site: Site, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    target = [kafka.bootstrap_servers, topic(2)]
    with sqlite3.connect(site.directory / "sessions.db") as database:
        database.execute("CREATE TABLE sessions (k INTEGER, first INTEGER, n INTEGER)")

    def run(name: str, *arguments: str) -> None:
        site.seamark("run", "-d", *arguments)
        site.seamark("checkpoint", name)

    run("one", "-p", "4", "app.py", "one", *target)
    site.kill_everything()
    run("one", "app.py", "one", *target)
    said = site.seamark("explain", "app.py").stdout
    site.seamark("stop", "-p", "savepoints", "one")
    (saved,) = (site.directory / "savepoints").iterdir()

    other = ("-D", "checkpoint.state_backend=rocksdb", "app.py", "two", *target, "swapped")
    run("two", "-s", str(saved), "-p", "3", *other)
    site.kill_everything()
    run("two", *other)
    site.seamark("stop", "--drain", "two")
    assert site.partitions("two") == "3"
    assert "share one stream" in said

    with sqlite3.connect(site.directory / "sessions.db") as database:
        columns = Counter(database.execute("SELECT k, first, n FROM sessions"))
    values = [json.loads(message.value()) for message in records(*target)]
    assert Counter((row["k"], row["first"], row["n"]) for row in values) == columns
    assert set(columns.values()) == {1}, "a session is there twice"
    starts = sorted(first for _, first, _ in columns)
    assert len(starts) > 40
    # Each burst of twenty rows has a session of the even ones and another of the odd ones.
    assert starts == [40 * (i // 2) + i % 2 for i in range(len(starts))], "a session is missing"
    assert {n for k, first, n in columns if first < max(starts) - 1} == {10}

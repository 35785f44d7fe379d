"""`seamark offsets`, and a source with a renamed topic, on a real broker.

How: a job reads a topic of two partitions and ends with a savepoint; the command line makes copies
with other offsets. Jobs restored from them read to the end of the log, so their sinks' files show
the rows read, and their counts the state.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as F
from typer.testing import CliRunner

import seamark as sm
from seamark.cli.main import app
from seamark.dev.kafka import LocalKafka
from seamark.model.errors import ConfigurationError, RestoreError
from seamark.spark.session import spark_session
from tests.chaos.driver import wait_until
from tests.every_change import FileChanges
from tests.threads import RunningJob

T0_MS = int(time.time()) * 1000  # the broker deletes records older than a week


def fill(servers: str, topic: str, values: range) -> None:
    """Put numbers into both partitions, even ones into the first, each a second after the last."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})  # in order
    for n in values:
        producer.produce(topic, str(n), partition=n % 2, timestamp=T0_MS + n * 1000)
    assert producer.flush(30) == 0


def declare(
    home: Path, name: str, servers: str, topics: Any, *, ending: str = "latest", **more: Any
) -> sm.Job:
    """Write each row, and the count of rows of each partition's number as it grows."""
    job = sm.Job(name, sm.CheckpointConfig(storage=str(home / "store"), interval="100ms"), "update")
    source = sm.KafkaSource(servers, topics=topics, ending=ending, **more)
    rows = job.source(source, uid="numbers")
    counts = job.uid(rows.groupBy("partition").count(), "counts")
    value = F.col("value").cast("string").cast("int")
    job.sink(
        rows.select(value.alias("n")), sm.FileSink(str(home / name / "rows"), "json"), uid="rows"
    )
    job.sink(counts, FileChanges(str(home / name / "counts"), "json"), uid="counted")
    return job


def written(home: Path, name: str, sink: str) -> list[dict[str, int]]:
    files = sorted((home / name / sink).glob("*.json"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def rows(home: Path, name: str) -> list[int]:
    return sorted(row["n"] for row in written(home, name, "rows"))


def counts(home: Path, name: str) -> dict[int, int]:
    """Return the last written count of each partition."""
    found: dict[int, int] = {}
    for row in written(home, name, "counts"):
        found[row["partition"]] = max(row["count"], found.get(row["partition"], 0))
    return found


def offsets(*arguments: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["offsets", *arguments])
    assert done.exit_code == code, (arguments, done.output, done.exception)
    return json.loads(done.stdout) if "--json" in arguments and code == 0 else done.output


@pytest.fixture
def running(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> Iterator[tuple[str, RunningJob]]:
    """A topic with the numbers up to 20, and a job past all of them."""
    name = topic(2)
    fill(kafka.bootstrap_servers, name, range(20))
    job = declare(tmp_path, "first", kafka.bootstrap_servers, name, ending="never")
    first = RunningJob(job)
    first.wait_for_epochs(1)
    yield name, first
    first.end()


@pytest.fixture
def taken(running: tuple[str, RunningJob], tmp_path: Path) -> tuple[str, str]:
    """The topic, and the savepoint at the job's end."""
    name, first = running
    path = first.take("stop_with_savepoint", tmp_path / "savepoints")
    first.join()
    assert rows(tmp_path, "first") == list(range(20))
    return name, path


def test_a_copy_goes_on_elsewhere_and_the_preview_says_what_is_read_again_or_left_out(
    kafka: LocalKafka, running: tuple[str, RunningJob], tmp_path: Path
) -> None:
    (topic, first), servers = running, kafka.bootstrap_servers
    said = offsets(
        "rewind", "first", "--to-earliest", "--storage", str(tmp_path / "store"),
        "--to", str(tmp_path / "of-running/copy"), "--bootstrap-servers", servers,
    )  # fmt: skip
    assert "Up to 20 rows are read again" in said
    assert (tmp_path / "of-running/copy/savepoint.json").exists()
    ending = first.job.stop_with_savepoint(str(tmp_path / "savepoints"), type="native")
    path = ending.result(180)
    first.join()
    asking = ("--bootstrap-servers", servers, "--json")
    fill(servers, topic, range(20, 30))

    (source,) = offsets("show", path, *asking)
    shown = [(p["partition"], p["offset"], p["log-end"]) for p in source["partitions"]]
    assert source["uid"] == "numbers"
    assert shown == [(0, 10, 15), (1, 10, 15)]
    (of_job,) = offsets("show", "first", "--storage", str(tmp_path / "store"), "--json")
    assert (of_job["uid"], of_job["offset"]) == ("numbers", source["offset"])

    # Number 5 and later: 6, 8, … of the first partition, 5, 7, … of the second.
    at = str(T0_MS + 5000)
    back = offsets("rewind", path, "--to-timestamp", at, "--dry-run", *asking)
    assert [(p["new"], p["reread"], p["skipped"]) for p in back["partitions"]] == [
        (3, 7, 0),
        (2, 8, 0),
    ]
    assert back["copy"] is None
    assert back["consequences"][0].startswith("Up to 15 rows are read again: for them every sink")
    later = offsets("rewind", path, "--to-timestamp", str(T0_MS + 25_000), "--dry-run", *asking)
    assert [p["new"] for p in later["partitions"]] == [10, 10], "a rewind never skips"
    beyond = offsets(
        "set", path, "--partition", f"{topic}:0=16", "--bootstrap-servers", servers, code=2
    )
    assert "its log holds the offsets 0 to 15" in beyond
    assert "no such partition" in offsets(
        "set", path, "--partition", f"{topic}:7=1", "--bootstrap-servers", servers, code=2
    )
    assert len(list((tmp_path / "savepoints").iterdir())) == 1, "nothing was written"

    to = str(tmp_path / "copy")
    moved = offsets(
        "set", path, "--partition", f"{topic}:0=7", "--partition", f"{topic}:1=12",
        "--to", to, *asking,
    )  # fmt: skip
    assert [(p["reread"], p["skipped"]) for p in moved["partitions"]] == [(3, 0), (0, 2)]
    assert "Up to 2 rows are never read" in moved["consequences"][1]
    assert offsets("show", path, "--json")[0]["offset"] == source["offset"], "the original stays"

    declare(tmp_path, "second", servers, topic).run(to)
    read = [14, 16, 18, *range(20, 30, 2), *range(25, 30, 2)]
    assert rows(tmp_path, "second") == sorted(read)
    assert counts(tmp_path, "second") == {0: 10 + 3 + 5, 1: 10 + 3}, "the state counts them again"

    # The job itself, as if it had been killed: a savepoint is made of its newest checkpoint.
    (ended,) = (tmp_path / "store/second/executions").glob("*/ended.json")
    ended.unlink()
    again = str(tmp_path / "of-job/copy")
    of_job = offsets(
        "rewind", "second", "--to-earliest", "--storage", str(tmp_path / "store"), "--to", again,
        *asking,
    )  # fmt: skip
    assert [(p["old"], p["new"], p["reread"]) for p in of_job["partitions"]] == [(15, 0, 15)] * 2
    (made,) = (tmp_path / "of-job").glob("savepoint-*")
    job_id = json.loads((made / "savepoint.json").read_text())["body"]["job_id"]
    assert made.name.startswith(f"savepoint-{job_id[:6]}-"), "as that of a running job"
    declare(tmp_path, "third", servers, topic).run(again)
    assert rows(tmp_path, "third") == list(range(30))
    assert counts(tmp_path, "third") == {0: 18 + 15, 1: 13 + 15}


def test_a_renamed_topic_is_refused_until_the_offsets_are_of_the_new_one(
    kafka: LocalKafka, topic: Callable[..., str], taken: tuple[str, str], tmp_path: Path
) -> None:
    (old, path), servers, new = taken, kafka.bootstrap_servers, topic(2)
    fill(servers, old, range(20, 23))
    fill(servers, new, range(100, 110))
    renamed = declare(tmp_path, "second", servers, new)
    with pytest.raises(RestoreError, match=rf"'numbers' is at offsets of topic '{old}', which"):
        renamed.run(path)
    assert not (tmp_path / "store/second").exists()
    # Spark would find it out in the first epoch, and speak of lost rows.
    first, remedy = tmp_path / "store/first", rf"'{old}', which .*offsets set --topic {old}={new}"
    with pytest.raises(RestoreError, match=remedy):
        renamed.run(str(first))
    with pytest.raises(ConfigurationError, match=remedy):
        declare(tmp_path, "first", servers, new).run()
    assert not (tmp_path / "store/second").exists()

    refused = offsets(
        "set", path, "--topic", f"{old}={new}", "--bootstrap-servers", servers, code=2
    )
    assert "its log holds the offsets 0 to 5" in refused, "the other log's offsets are no use here"
    to = str(tmp_path / "copy")
    moved = offsets(
        "set", path, "--topic", f"{old}={new}", "--to-earliest", "--partition", f"{new}:1=2",
        "--to", to, "--bootstrap-servers", servers, "--json",
    )  # fmt: skip
    found = [(p["topic"], p["partition"], p["old"], p["new"]) for p in moved["partitions"]]
    assert found == [(new, 0, None, 0), (new, 1, None, 2), (old, 0, 10, None), (old, 1, 10, None)]
    left = f"Of {old} nothing more is read; up to 3 rows stay unread."
    assert left in moved["consequences"]
    assert any("of up to 2 rows that it holds before" in said for said in moved["consequences"])
    renamed.run(to)
    assert rows(tmp_path, "second") == [100, 102, 104, 105, 106, 107, 108, 109]
    assert counts(tmp_path, "second") == {0: 15, 1: 13}

    # Without a copy: the old topic is left, and the new one begun as a new source's is.
    third = declare(tmp_path, "third", servers, new, starting_offsets={new: {0: 4, 1: -1}})
    third.run(path, allow_non_restored_state=True)
    assert Counter(rows(tmp_path, "third")) == Counter([108])
    # One more topic: the savepoint's topic goes on, the other is read from its start.
    both = declare(tmp_path, "fourth", servers, [old, new], starting_offsets="latest")
    both.run(path)
    assert rows(tmp_path, "fourth") == [20, 21, 22, *range(100, 110)]
    # Nor need a job have run: it begins at given offsets, with a given state.
    begun = declare(tmp_path, "fifth", servers, new)
    spark = spark_session("tests")
    state = spark.sql("SELECT struct(0 AS partition) AS key, struct(90L AS count) AS value")
    begin = str(tmp_path / "begin")
    begun.new_savepoint(begin, {"counts": state}, offsets={"numbers": {new: {0: 3, 1: 4}}})
    begun.run(begin)
    assert rows(tmp_path, "fifth") == [106, 108, 109]
    assert counts(tmp_path, "fifth") == {0: 92, 1: 1}


def test_a_topic_that_was_deleted_and_made_again_is_refused(
    kafka: LocalKafka, taken: tuple[str, str], tmp_path: Path
) -> None:
    """Its offsets say nothing of the new one's rows: Spark would pass over those before them."""
    (topic, path), servers = taken, kafka.bootstrap_servers
    plain = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}

    def copied() -> None:
        frame = spark_session("tests").readStream.format("kafka").options(**plain).load()
        value = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n")
        writer = sm.write_stream(value, sm.FileSink(str(tmp_path / "plain/rows"), "json"))
        writer = writer.option("checkpointLocation", str(tmp_path / "location"))
        writer.trigger(availableNow=True).start().awaitTermination()

    copied()
    assert rows(tmp_path, "plain") == list(range(20))
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(30)
    wait_until("the topic's end", lambda: topic not in admin.list_topics(timeout=30).topics, 60)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    fill(servers, topic, range(100, 130))

    said = rf"'numbers' is at offsets of a topic '{topic}' that was deleted: .* made again"
    with pytest.raises(ConfigurationError, match=rf"{said}.* failOnDataLoss"):
        declare(tmp_path, "first", servers, topic).run()
    with pytest.raises(RestoreError, match=said):
        declare(tmp_path, "second", servers, topic).run(path)
    with pytest.raises(RestoreError, match=said):
        declare(tmp_path, "second", servers, topic).run(str(tmp_path / "store/first"))
    assert not (tmp_path / "store/second").exists()
    with pytest.raises(ConfigurationError, match=said.replace("numbers", "source-0")):
        copied()

    to = str(tmp_path / "copy")
    offsets("rewind", path, "--to-earliest", "--to", to, "--bootstrap-servers", servers)
    declare(tmp_path, "second", servers, topic).run(to)
    assert rows(tmp_path, "second") == list(range(100, 130))
    # Or at the old offsets, if the user says so; then the new topic is the known one.
    lossy = {"failOnDataLoss": "false"}
    declare(tmp_path, "first", servers, topic, options=lossy).run()
    assert rows(tmp_path, "first") == [*range(20), *range(120, 130)]
    fill(servers, topic, range(130, 132))
    declare(tmp_path, "first", servers, topic).run()
    assert rows(tmp_path, "first") == [*range(20), *range(120, 132)]

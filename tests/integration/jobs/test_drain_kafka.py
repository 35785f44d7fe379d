"""A Kafka job is drained while records arrive, and again without a new record since its start.

How: numbers a second apart are counted in windows of ten seconds, into JSON files. The savepoint's
offsets tell the rows read; the windows of all jobs together must have counted exactly these.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import functions as F

import seamark as sm
from seamark.dev.kafka import LocalKafka
from tests.integration.jobs.test_offsets import fill
from tests.spark.savepoints.test_drain_operators import drain
from tests.threads import RunningJob, repeatedly


def declare(home: Path, name: str, servers: str, topic: str) -> sm.Job:
    job = sm.Job(name, sm.CheckpointConfig(storage=str(home / "store"), interval="100ms"))
    rows = job.source(sm.KafkaSource(servers, topics=topic, group_id=name), uid="numbers")
    seen = rows.withWatermark("timestamp", "1 minute")
    counted = seen.groupBy(F.window("timestamp", "10 seconds")).count()
    shown = job.uid(counted, "counts").select(F.unix_timestamp("window.start"), "count")
    job.sink(shown, sm.FileSink(str(home / name), format="json"), uid="out")
    return job


def total(home: Path, *names: str) -> int:
    files = [file for name in names for file in (home / name).glob("*.json")]
    return sum(json.loads(line)["count"] for file in files for line in file.open())


def read(path: str) -> int:
    (source,) = sm.Savepoint(path).record.sources
    return sum(offset for topic in source.offset.values() for offset in topic.values())


@pytest.mark.chaos
def test_what_was_read_is_counted(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, servers = topic(2), kafka.bootstrap_servers
    fill(servers, name, range(50))
    begins = itertools.count(50, 10)

    def arrive() -> None:
        begin = next(begins)
        fill(servers, name, range(begin, begin + 10))

    first = RunningJob(declare(tmp_path, "first", servers, name))
    first.wait_for_epochs(1)
    with repeatedly(arrive, 0.05):
        first.wait_for_epochs(4)
        path = drain(first, tmp_path)
    assert sm.Savepoint(path).record.drained
    counted = read(path)
    assert counted > 50
    assert total(tmp_path, "first") == counted

    # The next job reads the rest, ends, begins again, and is drained with nothing more to read.
    second = RunningJob(declare(tmp_path, "second", servers, name), restore=path)
    second.wait_for_epochs(1)
    second.job.trigger_checkpoint().result(300)
    second.end()
    open_ = total(tmp_path, "first", "second")
    again = RunningJob(declare(tmp_path, "second", servers, name))
    last = drain(again, tmp_path)
    assert sm.Savepoint(last).record.drained
    assert read(last) > counted
    assert open_ < total(tmp_path, "first", "second") == read(last)

"""How: the same job, with a sum for each key, runs on each state backend over the same three files
(many keys, then a few of them again; a fourth one would make RocksDB compact them), and its
statistics are compared with the bytes on disk."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import seamark as sm
from seamark.api.config import StateBackend
from seamark.model.checkpoint_statistics import CheckpointStatistics, TaskCheckpointStatistics
from seamark.model.errors import ConfigurationError
from seamark.savepoints.edit import bootstrap
from seamark.savepoints.state.rows import writing_session
from seamark.spark.state_backend import FORMAT, PARTITIONS, PROVIDER, session_settings
from tests.every_change import FileChanges

KEYS = 20_000
BACKENDS = {
    "hashmap": {"state_backend": "hashmap", "changelog": True},  # it always has one
    "rocksdb": {"state_backend": "rocksdb"},
    "changelog": {"state_backend": "rocksdb", "changelog": True},
}


COPIES = {"rocksdb": (".changelog", ".zip"), "hashmap": (".delta", ".snapshot")}
"""By backend, the files with an epoch's changes, and those with the whole state."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = tmp_path_factory.mktemp("backends")
    (world / "in").mkdir()
    add_file(world, 0, range(KEYS))
    add_file(world, 1, range(10))
    add_file(world, 2, range(5, 15))
    return world


def add_file(world: Path, number: int, keys: range) -> None:
    file = world / "in" / f"{number}.json"
    file.write_text("\n".join(json.dumps({"id": i, "value": number + 1}) for i in keys))
    os.utime(file, (number + 1, number + 1))  # Spark takes older files first


def sums(world: Path, name: str, **settings: object) -> sm.Job:
    config = sm.CheckpointConfig(storage=str(world / "store"), **settings)  # type: ignore[arg-type]
    job = sm.Job(name, config, output_mode="update")
    source = sm.FileSource(
        str(world / "in"),
        "json",
        "id BIGINT, value BIGINT",
        ending="latest",
        options={"maxFilesPerTrigger": 1},
    )
    rows = job.source(source, "numbers")
    total = rows.groupBy("id").agg(F.sum("value").alias("total"), F.count("*").alias("rows"))
    job.uid(total, "totals")
    job.sink(total, FileChanges(str(world / f"out-{name}")), "out")
    return job


@pytest.fixture(scope="module", params=BACKENDS)
def ran(
    request: pytest.FixtureRequest, world: Path, spark: SparkSession
) -> tuple[str, list[CheckpointStatistics]]:
    job = sums(world, request.param, **BACKENDS[request.param])
    before = spark.conf.get(PROVIDER, None)
    job.run()
    assert spark.conf.get(PROVIDER, None) == before, "the setting is for the job's query alone"
    return request.param, list(reversed(job.checkpoints().history))


def totals(checkpoint: CheckpointStatistics) -> TaskCheckpointStatistics:
    return next(task for task in checkpoint.tasks if task.uid == "totals")


def on_disk(world: Path, name: str, *endings: str) -> int:
    files = (world / "store" / name / "spark/state/0").glob("*/**/*")
    return sum(
        f.stat().st_size for f in files if f.name.endswith(endings) and not f.name.startswith(".")
    )


def test_results_are_the_same(ran: tuple[str, list[CheckpointStatistics]], world: Path,
                              spark: SparkSession) -> None:  # fmt: skip
    out = spark.read.parquet(str(world / f"out-{ran[0]}"))
    last = out.groupBy("id").agg(F.max("rows"), F.max("total")).collect()
    assert len(last) == KEYS
    wanted = dict.fromkeys(range(KEYS), (1, 1))
    wanted |= dict.fromkeys(range(5), (2, 3)) | dict.fromkeys(range(5, 10), (3, 6))
    wanted |= dict.fromkeys(range(10, 15), (2, 4))
    assert {row[0]: (row[1], row[2]) for row in last} == wanted


def test_each_epoch_has_sizes_and_durations(
    ran: tuple[str, list[CheckpointStatistics]], spark: SparkSession
) -> None:
    _, checkpoints = ran
    assert [c.id for c in checkpoints] == [0, 1, 2]
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    subtasks = 1 + 2 * partitions
    for checkpoint in checkpoints:
        assert [(t.uid, t.kind) for t in checkpoint.tasks] == [
            ("numbers", "source"), ("totals", "operator"), ("out", "sink"),
        ]  # fmt: skip
        assert checkpoint.num_subtasks == checkpoint.num_acknowledged_subtasks == subtasks
        assert 0 < checkpoint.sync_duration <= checkpoint.end_to_end_duration
        assert 0 <= checkpoint.async_duration <= checkpoint.end_to_end_duration
        assert 0 <= checkpoint.start_delay <= checkpoint.sync_duration
        assert 0 <= checkpoint.alignment_duration <= checkpoint.sync_duration
        assert totals(checkpoint).checkpointed_size < checkpoint.checkpointed_size
        assert totals(checkpoint).metrics["numRowsTotal"] == KEYS
        assert checkpoint.spark_durations["triggerExecution"] > 0
        assert checkpoint.processed_data >= checkpoint.rows * 24, "three numbers of 8 bytes a row"
    assert [c.tasks[0].rows for c in checkpoints] == [KEYS, 10, 10]
    assert [c.rows for c in checkpoints] == [KEYS, 10, 10]
    assert [t.rows for t in map(totals, checkpoints)] == [KEYS, 10, 10]


def test_a_checkpoint_uploads_only_what_changed(
    ran: tuple[str, list[CheckpointStatistics]], world: Path
) -> None:
    name, checkpoints = ran
    first, *later = [totals(c).checkpointed_size for c in checkpoints]
    kinds = {
        "hashmap": (".delta",),
        "rocksdb": (".zip", ".sst"),
        "changelog": (".changelog",),
    }[name]
    assert first + sum(later) == on_disk(world, name, *kinds), "nothing is counted twice or missed"
    assert first > KEYS * 5
    assert all(size * 4 < first for size in later), (first, later)
    assert all(0.9 * first < totals(c).state_size for c in checkpoints), "a restore reads it all"
    if name == "rocksdb":
        assert totals(checkpoints[1]).metrics["rocksdbBytesCopied"] < first / 4


def test_the_statistics_outlive_the_job_and_are_found_by_another(
    ran: tuple[str, list[CheckpointStatistics]], world: Path
) -> None:
    name, checkpoints = ran
    again = sums(world, name, **BACKENDS[name]).checkpoints()
    assert list(reversed(again.history)) == checkpoints
    assert again.counts.completed == 3
    assert again.summary["checkpointed_size"].max == checkpoints[0].checkpointed_size


def test_another_backend_is_refused_and_the_changelog_may_be_switched(
    world: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    sums(world, "switched", state_backend="rocksdb").run(parallelism=3)
    with pytest.raises(ConfigurationError, match=r"state_backend is 'hashmap', but the state in .*"
                       r" is of 'rocksdb'.* give state_backend='rocksdb'"):  # fmt: skip
        sums(world, "switched", state_backend="hashmap").run()
    add_file(world, 3, range(10))
    try:
        assert "has no effect" not in caplog.text
        sums(world, "switched", state_backend="rocksdb", changelog=True).run(parallelism=7)
    finally:
        (world / "in/3.json").unlink()
    assert "parallelism=7 (-p) has no effect: the state in " in caplog.text
    assert " has 3 partitions, and Spark goes on with them" in caplog.text
    last = sums(world, "switched").checkpoints().history[0]
    assert last.id == 3
    assert last.rows == 10
    assert 0 < totals(last).checkpointed_size == on_disk(world, "switched", ".changelog") < 10_000
    out = spark.read.parquet(str(world / "out-switched"))
    assert out.where("id = 7").agg(F.max("total")).collect()[0][0] == 10


def runs_with_two_intervals(world: Path) -> None:
    """In a process of its own: the state's maintenance belongs to the JVM."""
    for backend, interval in itertools.product(COPIES, (1, 50)):
        job = sums(
            world,
            f"{backend}-every-{interval}",
            state_backend=backend,
            changelog=True,
            changelog_snapshot_interval=interval,
        )
        job.run()


def test_the_whole_state_is_uploaded_at_the_snapshot_interval(world: Path) -> None:
    """Spark's maintenance uploads the copies, every 60 s: here it is quick."""
    run = f"from {__name__} import *; runs_with_two_intervals(Path(sys.argv[1]))"
    quick = "--conf spark.sql.streaming.stateStore.maintenanceInterval=50ms pyspark-shell"
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": quick}
    subprocess.run(
        [sys.executable, "-c", run, str(world)], env=environment, check=True, timeout=300
    )
    for backend, (changes, copy) in COPIES.items():
        assert on_disk(world, f"{backend}-every-1", copy) > 0
        assert on_disk(world, f"{backend}-every-50", copy) == 0
        for name in (f"{backend}-every-1", f"{backend}-every-50"):
            shown = sums(world, name).checkpoints().history
            uploaded = sum(totals(c).checkpointed_size for c in shown)
            assert uploaded == on_disk(world, name, changes), "the copies are no part of an epoch"


def test_a_start_does_not_take_the_settings_of_another_one_for_the_sessions(
    world: Path, spark: SparkSession
) -> None:
    """How: another query is starting, whose state is of format 2, for three seconds."""
    sums(world, "beside").run()
    held, release = threading.Event(), threading.Event()

    def start_another() -> None:
        with session_settings(spark, {FORMAT: "2"}):
            held.set()
            release.wait(60)

    threading.Thread(target=start_another).start()
    assert held.wait(60)
    threading.Timer(3, release.set).start()
    sums(world, "beside").run()


def test_a_savepoint_does_not_take_the_settings_of_a_start_under_way(
    spark: SparkSession,
) -> None:
    """How: a query with settings of its own is starting; a savepoint is made meanwhile."""
    job: Any = SimpleNamespace(backend=StateBackend.HASHMAP, partitions=None)
    format_ = spark.conf.get(FORMAT)
    with session_settings(spark, {FORMAT: "2", PARTITIONS: "77"}):
        assert writing_session(spark).conf.get(FORMAT) == format_
        made = bootstrap._settings(spark, job)
    assert made.get(FORMAT, format_) == format_ and made[PARTITIONS] != "77"


def test_two_operators_in_one_job_on_rocksdb(world: Path, spark: SparkSession) -> None:
    """From the second epoch on, few tasks would compute the partitions of both."""
    config = sm.CheckpointConfig(storage=str(world / "store"), state_backend="rocksdb")
    job = sm.Job("two-operators", config)
    source = sm.FileSource(
        world / "in", "json", "id BIGINT, value BIGINT", ending="latest",
        options={"maxFilesPerTrigger": 1},
    )  # fmt: skip
    rows = job.source(source, uid="rows").where("id < 100")
    job.sink(rows.dropDuplicates(["id"]), sm.FileSink(world / "first"), uid="first")
    at = rows.selectExpr("id % 7 AS id", "timestamp_seconds(value * 1000) AS at")
    counts = at.withWatermark("at", "1 second").groupBy("at", "id").count()
    job.sink(counts, sm.FileSink(world / "counts"), uid="counts")
    job.run()
    assert spark.read.parquet(str(world / "first")).count() == 100
    assert spark.read.parquet(str(world / "counts")).agg(F.sum("count")).first()[0] == 110

"""How: one stateful job with its checkpoints on HDFS, S3 or a server with Google's interface; its
statistics are compared with Spark's own listing of the store, and with the command line's tables
of the same job."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

import seamark as sm
from seamark.cli.main import app
from seamark.model.checkpoint_statistics import CheckpointStatistics, TaskCheckpointStatistics
from tests.every_change import FileChanges
from tests.spark.storage.test_hadoop_files import STORES, base  # noqa: F401 - a fixture

KEYS = 2_000


def listed(spark: SparkSession, uri: str) -> dict[str, int]:
    """Return every file below the job's directory, with its bytes, as Spark lists it."""
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(uri)
    return {
        row.path.split("/job/", 1)[1]: row.length
        for row in files.select("path", "length").collect()
    }


def totals(checkpoint: CheckpointStatistics) -> TaskCheckpointStatistics:
    return next(task for task in checkpoint.tasks if task.uid == "totals")


@pytest.mark.parametrize("store", STORES)
def test_sizes_and_files(spark: SparkSession, base: str, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "in").mkdir()
    for number, keys in enumerate((range(KEYS), range(10))):
        file = tmp_path / f"in/{number}.json"
        file.write_text("\n".join(json.dumps({"id": i}) for i in keys))
        os.utime(file, (number + 1, number + 1))  # Spark takes older files first
    config = sm.CheckpointConfig(storage=base, state_backend="rocksdb")
    job = sm.Job("job", config, output_mode="update")
    options = {"maxFilesPerTrigger": 1}
    source = sm.FileSource(
        str(tmp_path / "in"), "json", "id BIGINT", ending="latest", options=options
    )
    count = job.source(source, "numbers").groupBy("id").agg(F.count("*").alias("rows"))
    job.uid(count, "totals")
    job.sink(count, FileChanges(str(tmp_path / "out")), "out")
    job.run()

    shown = job.checkpoints()
    assert [(c.id, c.status.value) for c in shown.history] == [(1, "COMPLETED"), (0, "COMPLETED")]
    second, first = shown.history
    files = listed(spark, f"{base}/job")
    state = {name: size for name, size in files.items() if name.endswith((".zip", ".sst"))}
    uploaded = [totals(c).checkpointed_size for c in (first, second)]
    assert sum(uploaded) == sum(state.values()), "a state file is counted twice or missed"
    assert uploaded[1] * 2 < uploaded[0], "the second epoch has uploaded only what it changed"
    newest = sum(size for name, size in state.items() if not name.endswith("/1.zip"))
    assert totals(second).state_size == newest, "a restore reads the newest zips and all SST files"
    for checkpoint in (first, second):
        n = checkpoint.id
        assert checkpoint.external_path == f"{base}/job/epochs/{n}"
        assert not checkpoint.discarded
        own = {
            name: size
            for name, size in files.items()
            if name.startswith(f"epochs/{n}/")
            or name in (f"spark/offsets/{n}", f"spark/commits/{n}", f"spark/sources/0/{n}")
        }
        assert len(own) == 7, sorted(own)
        records = checkpoint.checkpointed_size - totals(checkpoint).checkpointed_size
        least = sum(own.values()) - own[f"epochs/{n}/manifest.json"]  # it is written meanwhile
        assert records in (least, sum(own.values()))
        assert checkpoint.num_acknowledged_subtasks == checkpoint.num_subtasks

    said = CliRunner().invoke(app, ["checkpoints", "job", "--storage", base, "--json"])
    assert said.exit_code == 0, said.output
    history = json.loads(said.stdout)["history"]
    assert [c["checkpointed_size"] for c in history] == [c.checkpointed_size for c in shown.history]

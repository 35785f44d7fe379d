"""FileSource beyond its settings: which files are read.

How: a job that ends with what is there, run again after each new file.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark.sql import SparkSession

import seamark as sm
from tests.spark.jobs.test_job import read

DAY_S = 86_400


def test_a_file_that_is_older_than_those_before_it_is_read(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Such as a copy that keeps its original's time. Spark leaves out, without a word, what is
    seven days older than the newest file it has read."""
    (tmp_path / "in").mkdir()
    for number, days in enumerate((0, 30, 3000)):
        file = tmp_path / f"in/{number}.json"
        file.write_text(f'{{"id": {number}}}')
        os.utime(file, (time.time() - days * DAY_S,) * 2)
        job = sm.Job("ages", sm.CheckpointConfig(storage=f"file://{tmp_path}/store"))
        source = sm.FileSource(str(tmp_path / "in"), "json", "id BIGINT", ending="latest")
        job.sink(job.source(source, "in"), sm.SQLiteSink(str(tmp_path / "out.db"), "t"), "out")
        job.run()
        found = read(tmp_path / "out.db", "SELECT id FROM t ORDER BY id")
        assert found == [(n,) for n in range(number + 1)]

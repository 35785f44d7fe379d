"""How: a real job with checkpoints for the program's lifetime, run twice in this program, and a
program of its own to its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

import seamark as sm
from seamark.api.ephemeral_storage import storage_directory
from tests.spark.jobs.test_job import clicks, read


def test_a_job_goes_on_in_the_same_program_and_says_what_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = tmp_path / "sink.db"

    def run(first: int) -> sm.Job:
        incoming = clicks(tmp_path, 30, first)
        job = sm.Job("short-lived", sm.CheckpointConfig(storage=sm.EphemeralStorage(), interval=0))
        source = sm.FileSource(
            incoming, format="json", schema="id LONG, page STRING", ending="latest"
        )
        job.sink(job.source(source, uid="in"), sm.SQLiteSink(str(database), table="t"), uid="out")
        job.run()
        return job

    run(0)
    report = str(run(30).report())
    ids = [row[0] for row in read(database, "SELECT id FROM t ORDER BY id")]
    assert ids == list(range(60))
    assert "the job: none" in report
    assert "checkpoints are deleted at the end of the program" in report


def test_the_directory_ends_with_the_program() -> None:
    program = (
        "import seamark as sm\n"
        "from seamark.api.ephemeral_storage import storage_directory\n"
        "print(storage_directory(sm.EphemeralStorage()))\n"
        "print(storage_directory(sm.EphemeralStorage()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    first, second = done.stdout.split()
    assert first == second != storage_directory(sm.EphemeralStorage())
    assert first.startswith("file:///")
    assert not Path(urlsplit(first).path).exists()


def test_the_directory_outlives_a_fork_of_the_program() -> None:
    program = (
        "import os, pathlib, sys, seamark as sm\n"
        "from seamark.api.ephemeral_storage import storage_directory\n"
        "directory = storage_directory(sm.EphemeralStorage()).removeprefix('file://')\n"
        "if not os.fork():\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "print(directory, pathlib.Path(directory).exists())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    directory, exists = done.stdout.split()
    assert exists == "True"
    assert not Path(directory).exists()

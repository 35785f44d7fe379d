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


def printed(program: str) -> list[str]:
    """The words that a program prints, in which `directory()` asks for the directory."""
    begun = (
        "import os, pathlib, sys\n"
        "from functools import partial\n"
        "from seamark.api.ephemeral_storage import EphemeralStorage, storage_directory\n"
        "directory = partial(storage_directory, EphemeralStorage())\n"
    )
    command = [sys.executable, "-c", begun + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.split()


def test_the_directory_ends_with_the_program() -> None:
    first, second = printed("print(directory())\nprint(directory())\n")
    assert first == second != storage_directory(sm.EphemeralStorage())
    assert first.startswith("file:///")
    assert not Path(urlsplit(first).path).exists()


def test_the_directory_outlives_a_fork_of_the_program() -> None:
    directory, exists = printed(
        "path = directory().removeprefix('file://')\n"
        "if not os.fork():\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "print(path, pathlib.Path(path).exists())\n"
    )
    assert exists == "True"
    assert not Path(directory).exists()


def test_threads_that_ask_at_once_get_one_directory() -> None:
    found = printed(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "sys.setswitchinterval(1e-6)\n"
        "with ThreadPoolExecutor(16) as threads:\n"
        "    print(*threads.map(lambda _: directory(), range(16)))\n"
    )
    assert len(found) == 16 and len(set(found)) == 1

"""`seamark doctor` and `seamark init`, and what the project's Makefile has."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from seamark.spark.spark_versions import HAS_READ_LIMITS
from tests.newcomer.conftest import Newcomer


def test_the_doctor_misses_nothing(newcomer: Newcomer) -> None:
    done = newcomer.run("seamark", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nok ") >= 6
    assert not list(newcomer.directory.iterdir())


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="DatagenSource needs Spark 4.2")
def test_a_new_project_runs_and_its_test_counts(newcomer: Newcomer) -> None:
    assert newcomer.run("seamark", "init", "my.shop").returncode == 0
    project = newcomer.directory / "my.shop"
    assert {file.name for file in project.iterdir()} == {
        ".gitignore", "Makefile", "app.py", "compose.yaml", "seamark.toml", "test_app.py",
    }  # fmt: skip
    counted = newcomer.run("make", "-C", "my.shop", "test")
    assert counted.returncode == 0, counted.stdout + counted.stderr
    assert "2 times kill -9: none lost, none doubled\n" in counted.stdout
    # Of drivers that died, and of the daemons of their Python workers.
    assert not re.search("Traceback|WARN", counted.stdout + counted.stderr)
    assert not (project / "checkpoints").exists()

    with newcomer.running("make -C my.shop run", "run.log") as job:
        newcomer.wait(lambda: _rows(project / "my.shop.db"), "run.log", job)
        os.killpg(job.pid, signal.SIGINT)  # Ctrl-C
        job.wait(60)
    assert (project / "checkpoints" / "my.shop" / "job.json").exists()
    assert "status=COMPLETED" in newcomer.said("run.log")


def _rows(database: Path) -> int:
    if database.exists():
        uri = f"file:{database}?mode=rw"
        with (
            closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection,
            suppress(sqlite3.OperationalError),  # no table yet
        ):
            return int(connection.execute("SELECT count(*) FROM clicks").fetchone()[0])
    return 0

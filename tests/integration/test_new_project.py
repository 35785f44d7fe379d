"""`seamark init`, as typed in an empty directory: what it makes runs, is killed, and counts."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from seamark.runtime.spark_versions import HAS_READ_LIMITS

SEAMARK = Path(sys.executable).with_name("seamark")


def init(directory: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SEAMARK, "init", name], cwd=directory, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(not HAS_READ_LIMITS, reason="DatagenSource needs Spark 4.2")
def test_a_new_project_runs_and_its_test_counts(tmp_path: Path) -> None:
    assert init(tmp_path, "my.shop").returncode == 0
    project = tmp_path / "my.shop"
    assert {file.name for file in project.iterdir()} == {
        ".gitignore", "Makefile", "app.py", "compose.yaml", "seamark.toml", "test_app.py",
    }  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    counted = subprocess.run(
        ["make", "test"], cwd=project, env=environment,
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert counted.returncode == 0, counted.stdout + counted.stderr
    assert "2 times kill -9: none lost, none doubled\n" in counted.stdout
    assert not (project / "checkpoints").exists()

    with (project / "log").open("wb") as log:
        job = subprocess.Popen(
            ["make", "run"], cwd=project, env=environment, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 200
        while not _rows(project / "my.shop.db"):
            assert job.poll() is None, (project / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        os.killpg(job.pid, signal.SIGINT)
    job.wait(60)
    assert (project / "checkpoints" / "my.shop" / "job.json").exists()
    assert "status=COMPLETED" in (project / "log").read_text()


def _rows(database: Path) -> int:
    if not database.exists():
        return 0
    with closing(sqlite3.connect(f"file:{database}?mode=rw", uri=True, timeout=30)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM clicks").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


@pytest.mark.parametrize(
    ("name", "said"),
    [("used", "is not empty"), ("no such name!", "seamark init: NAME"), ("file", "cannot be made")],
)
def test_a_wrong_name_is_one_line(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "app.py").write_text("mine")
    (tmp_path / "file").write_text("mine")
    done = init(tmp_path, name)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "used" / "app.py").read_text() == "mine"
    assert not (tmp_path / "no such name!").exists()

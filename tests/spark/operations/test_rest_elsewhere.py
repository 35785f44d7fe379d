"""A driver that is somewhere else: HTTPS by a certificate, a token of the user's own.

How: a real job and real verbs, each with a home of its own, as on two machines; the verbs know of
the driver what the storage says, and what their environment gives them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.driver import REPOSITORY, Driver, wait_until
from tests.servers.login_kafka import make_certificates

TOKEN = "a-token-of-the-users-own-0123456789"
PROGRAM = """
import logging
import seamark as sm
logging.basicConfig(level=logging.INFO)
job = sm.Job(
    "clicks", sm.CheckpointConfig(storage="store", interval="1s", savepoint_dir="savepoints"),
    rest=sm.RestConfig(address="0.0.0.0", advertised_address="127.0.0.1", certificate="own.pem"),
)
rows = job.source(sm.DatagenSource(rows_per_second=100), uid="rows")
job.sink(rows.select("row"), sm.FileSink("out", format="json"), uid="files")
if __name__ == "__main__":
    job.run()
"""


@contextmanager
def driver_elsewhere(tmp_path: Path) -> Iterator[Driver]:
    """Run the job in a directory, with what a caller needs: `ca.pem`, and the token in `secret`."""
    (tmp_path / "app.py").write_text(PROGRAM)
    make_certificates(tmp_path / "ca.pem", {tmp_path / "own.pem": "driver"})
    (tmp_path / "secret").write_text(TOKEN + "\n")
    environment = {
        "SEAMARK_HOME": str(tmp_path / "there"), "SEAMARK_TOKEN_FILE": str(tmp_path / "secret"),
        "SSL_CERT_FILE": str(tmp_path / "ca.pem"),
    }  # fmt: skip
    driver = Driver(tmp_path / "app.py", {}, tmp_path / "driver.log", environment=environment)
    try:
        driver.wait_for_epochs(1)
        yield driver
    finally:
        driver.kill_tree()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with driver_elsewhere(tmp_path):
        yield tmp_path


def verb(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a verb as on another machine."""
    return subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", *arguments, "--storage", f"file://{home}/store"],
        capture_output=True, text=True, timeout=300, cwd=home, check=False,
        env={
            **os.environ, "SEAMARK_HOME": str(home / "here"), "PYTHONPATH": f"{REPOSITORY}/src",
            **environment,
        },
    )  # fmt: skip


def listed(home: Path, **environment: str) -> dict[str, Any]:
    found = verb(home, "list", "-a", "--json", **environment)
    assert found.returncode == 0, found.stderr
    (job,) = json.loads(found.stdout)
    return dict(job)


def test_verbs_from_elsewhere(home: Path) -> None:
    authority, token = str(home / "ca.pem"), {"SEAMARK_TOKEN": TOKEN}
    assert listed(home)["state"] == "UNREACHABLE", "its certificate is nobody's they know"
    job = listed(home, SSL_CERT_FILE=authority)
    assert job["state"] == "RUNNING" and job["rest-url"].startswith("https://127.0.0.1:")
    assert not (home / "there").exists(), "a given token lies in no file of the driver's"

    without = verb(home, "savepoint", "clicks", SSL_CERT_FILE=authority)
    assert without.returncode != 0 and "SEAMARK_TOKEN" in without.stderr, without
    wrong = verb(home, "cancel", "clicks", SSL_CERT_FILE=authority, SEAMARK_TOKEN=TOKEN + "x")
    assert wrong.returncode != 0 and "not signed with the job's token" in wrong.stderr, wrong
    assert listed(home, SSL_CERT_FILE=authority)["state"] == "RUNNING"

    taken = verb(home, "savepoint", "clicks", SSL_CERT_FILE=authority, **token)
    assert taken.returncode == 0, taken.stderr
    done = verb(home, "cancel", "clicks", SSL_CERT_FILE=authority, **token)
    assert done.returncode == 0, done.stderr
    wait_until("the job has ended", lambda: listed(home)["state"] == "CANCELED", 30)
    for path in home.rglob("*"):
        if path.is_file() and path.name != "secret":
            assert TOKEN.encode() not in path.read_bytes(), path

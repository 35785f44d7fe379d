"""`seamark verify` itself, on real systems: sound jobs pass, and a planted fault is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.driver import REPOSITORY

ORDERS = str(Path(__file__).with_name("app_orders.py"))
PLANTED = str(Path(__file__).with_name("app_planted.py"))
FOUND = (
    "commit before the decision",
    "store after the decision",
    "abort what was decided",
    "forget a sink",
    "trust a batch id as a token after restart",
    "reuse an id while its outcome is open",
    "commit another generation's transactions",
    "commit lingering transactions",
    "no seal",
    "write before recovery has aborted",
    "skip check_continuity",
    "keep the plans beyond a void decision",
)
"""The faults of the protocol in app_planted.py that readers of a real job, or its drivers, show."""


def verify(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", "verify", "--report", "report.html", *arguments],
        capture_output=True,
        text=True,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"},
        timeout=1200,
        check=False,
    )


@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_a_workload_under_every_fault(tmp_path: Path) -> None:
    done = verify(tmp_path, "--workload", "windows", "--minutes", "1", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("GOOD: no anomaly in ")
    assert "fault 1: " in done.stderr
    assert "--seed 1" in (tmp_path / "report.html").read_text()


@pytest.mark.chaos
@pytest.mark.timeout(1500)
def test_a_death_at_a_failpoint_is_confirmed(tmp_path: Path) -> None:
    """The plan of this seed begins with a kill in a recovery, after one that it has to recover."""
    done = verify(tmp_path, "--faults", "driver", "--minutes", "0.5", "--seed", "126")
    assert done.returncode == 0, done.stdout + done.stderr
    came = "killed, then died at decided:1, then died at recovery-committed:1"
    assert f"fault 1: {came}" in done.stderr
    assert came in (tmp_path / "report.html").read_text()


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("eager", [False, True])
def test_a_program_of_ones_own(eager: bool, tmp_path: Path) -> None:
    """The planted sink commits before the decision: readers see rows that may be taken back, and a
    replay writes them again."""
    arguments = ["--faults", "driver,connection", "--minutes", "1", "--seed", "2", "--app", ORDERS]
    done = verify(tmp_path, *arguments, *["eager"] * eager)
    assert done.returncode == int(eager), done.stdout + done.stderr
    assert done.stdout.startswith("BAD: " if eager else "GOOD: ")
    assert ("aborted read in SQLite orders" in done.stderr) == eager


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("bug", [*FOUND, "sound"])
def test_a_fault_of_the_protocol_is_found(bug: str, tmp_path: Path) -> None:
    """Within ten minutes, by the same plan; docs/verification.md has the times."""
    minutes = "5" if bug == "sound" else "10"
    plan = ["--faults", "driver,pause,connection", "--stop-at-first", "--seed", "1"]
    done = verify(tmp_path, *plan, "--minutes", minutes, "--app", PLANTED, bug)
    print(done.stdout)
    assert done.returncode == int(bug != "sound"), done.stdout + done.stderr
    assert done.stdout.startswith("GOOD: " if bug == "sound" else "BAD: ")

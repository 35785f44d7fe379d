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
FOUND_BY = {
    "commit before the decision": ("driver", "1"),
    "store after the decision": ("driver", "234"),
    "abort what was decided": ("driver", "234"),
    "forget a sink": ("driver", "234"),
    "trust a batch id as a token after restart": ("driver", "1636"),
    "reuse an id while its outcome is open": ("driver", "234"),
    "commit another generation's transactions": ("driver", "1636"),
    "commit lingering transactions": ("driver", "1971"),
    "no seal": ("pause", "453"),
    "write before recovery has aborted": ("pause", "126"),
    "skip check_continuity": ("pause", "453"),
    "keep the plans beyond a void decision": ("pause", "453"),
    "believe a sink that has forgotten": ("pause", "126"),
}
"""The faults of the protocol in app_planted.py; the harm that shows each, and the seed of its plan.
234 begins with a death at `decided`, 1636 at `prepared`, 1971 at `pre-committed`; 453 with a driver
that stops at `prepared` and decides after its successor has fenced it, 126 with one that wakes up
after its successor."""


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
    done = verify(tmp_path, "--faults", "driver", "--minutes", "0.5", "--seed", "25")
    assert done.returncode == 0, done.stdout + done.stderr
    came = "killed, then died at decided, then died at recovery-committed:1"
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
@pytest.mark.parametrize("bug", [*FOUND_BY, "sound"])
def test_a_fault_of_the_protocol_is_found(bug: str, tmp_path: Path) -> None:
    """Ten minutes at most; docs/verification.md has the times."""
    faults, seed = FOUND_BY.get(bug, ("driver,pause", "126"))
    arguments = ["--stop-at-first", "--minutes", "3" if bug == "sound" else "10", "--seed", seed]
    done = verify(tmp_path, "--faults", faults, *arguments, "--app", PLANTED, bug)
    print(done.stdout)
    assert done.returncode == int(bug != "sound"), done.stdout + done.stderr
    assert done.stdout.startswith("GOOD: " if bug == "sound" else "BAD: ")

"""Failpoints: child processes pass points with and without one armed; the dead, and the moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from seamark.model import failpoints
from seamark.model.errors import ConfigurationError

PASS_THREE = """
from seamark.model import failpoints
for n in (1, 2, 3):
    print(n, flush=True)
    failpoints.reached("here")
    failpoints.reached("elsewhere")
print("end", flush=True)
"""


def run(program: str, armed: str | None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "SEAMARK_FAILPOINT"}
    if armed is not None:
        env["SEAMARK_FAILPOINT"] = armed
    return subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    ("armed", "printed"),
    [("here", ["1"]), ("here:1", ["1"]), ("here:3", ["1", "2", "3"]), ("elsewhere:2", ["1", "2"])],
)
def test_it_dies_at_the_nth_time(armed: str, printed: list[str]) -> None:
    done = run(PASS_THREE, armed)
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == printed
    assert done.stderr.splitlines()[-1] == f"Seamark dies at failpoint {armed.partition(':')[0]}"


def test_it_stops_once_and_goes_on() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PASS_THREE],
        env={**os.environ, "SEAMARK_FAILPOINT": "here:2@stop"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    child.send_signal(signal.SIGCONT)
    out, err = child.communicate(timeout=300)
    assert (child.returncode, out.split()) == (0, ["1", "2", "3", "end"])
    assert err.splitlines() == ["Seamark stops at failpoint here"]


@pytest.mark.parametrize("armed", [None, "", "nowhere", "here:4"])
def test_it_lives_when_the_point_is_not_reached(armed: str | None) -> None:
    done = run(PASS_THREE, armed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "2", "3", "end"]


@pytest.mark.parametrize("value", ["x:y", "x:", "x:0", "x:-1", "x:1.5", "x:" + 5000 * "9"])
def test_what_is_no_failpoint_is_refused(value: str) -> None:
    """How a program and a command end then: `unit/cli/test_run.py`."""
    with pytest.raises(ConfigurationError, match=f"SEAMARK_FAILPOINT is '{value}'; give name or"):
        failpoints.arm(value)


def test_companions_die_with_it() -> None:
    program = """
import subprocess, sys
from seamark.model import failpoints
child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); "
                          "time.sleep(600)"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
failpoints.companions.append(child.pid)
failpoints.reached("here")
"""
    # `run` returns only when the companion has let go of the inherited stderr: when it is dead.
    done = run(program, "here")
    assert done.returncode == -signal.SIGKILL
    assert int(done.stdout) > 0

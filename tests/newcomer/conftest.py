"""The newcomer's machine: Seamark is installed from a wheel of this checkout into an environment of
its own, and the checkout is nowhere on its path.

The environment sees the packages of the tests' own environment (PySpark's 450 MB are not installed
again), but not its Seamark: an editable install works by a `.pth` file, which Python reads in an
environment's own directory alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
# Of a developer, or of the tests: the newcomer has none.
NOT_SET = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "MAKEFLAGS", "MAKELEVEL")
PATIENCE_S = 240


@dataclass
class Newcomer:
    """A shell in an empty directory, the environment active."""

    directory: Path
    environment: dict[str, str]

    def run(self, *command: object, timeout: float = 540) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and print its seconds."""
        words = [str(word) for word in command]
        begun = time.monotonic()
        done = subprocess.run(
            words, cwd=self.directory, env=self.environment,
            capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip
        print(f"{time.monotonic() - begun:6.1f} s  {' '.join(words)}")
        return done

    @contextlib.contextmanager
    def running(self, command: str, log: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command line in the background; its whole group is killed with -9 at the end."""
        begun = time.monotonic()
        with (self.directory / log).open("ab") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.directory, env=self.environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"{time.monotonic() - begun:6.1f} s  {command}")

    def said(self, log: str) -> str:
        """Return a log of `running`."""
        return (self.directory / log).read_text(errors="replace")

    def wait(
        self, what: Callable[[], object], log: str, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        """Return once `what` is true; `process` must not end before."""
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert process is None or process.poll() is None, self.said(log)
            assert time.monotonic() < deadline, self.said(log)
            time.sleep(0.1)


PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a distribution is made of: a build leaves its files there."""
    copy = tmp_path_factory.mktemp("source") / "seamark"
    shutil.copytree(REPO / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE", "MANIFEST.in"):
        shutil.copy(REPO / name, copy)
    return copy


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """A wheel of this checkout."""
    wheels = tmp_path_factory.mktemp("wheels")
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", wheels, source], check=True)
    (made,) = wheels.glob("pyspark_seamark-*.whl")
    return made


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> dict[str, str]:
    """Variables of a shell whose environment has the wheel alone installed."""
    venv = tmp_path_factory.mktemp("newcomer") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    subprocess.run(
        [*PIP, "--python", venv, "install", "--no-deps", "--no-index", wheel], check=True
    )
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    variables = {name: value for name, value in os.environ.items() if name not in NOT_SET}
    variables |= {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}
    where = ["python", "-c", "import seamark; print(seamark.__file__)"]
    found = subprocess.run(where, env=variables, cwd=venv, capture_output=True, text=True)
    assert found.stdout.startswith(str(packages)), found
    return variables


@pytest.fixture
def newcomer(environment: dict[str, str], tmp_path: Path) -> Newcomer:
    directory = tmp_path / "here"
    directory.mkdir()
    variables = {"SEAMARK_HOME": str(tmp_path / "home"), "COLUMNS": "200"}
    return Newcomer(directory, {**environment, **variables})

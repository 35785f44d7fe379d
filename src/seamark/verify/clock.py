"""A wrong clock for one driver: libfaketime, loaded into its Python and its JVM, moves the wall
clock by what a file says. The monotonic clock and the times of files stay right, and so do Python
workers: librdkafka waits by C functions that libfaketime does not know, and would not wake up."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from seamark.model.errors import MissingDependencyError

CACHE_S = 1
"""How late a process sees that the file has changed, at most."""


class WrongClock:
    """What a driver's clock is wrong by; `environment` is that of a driver with this clock. Raises
    MissingDependencyError if it cannot be had here."""

    def __init__(self, file: Path) -> None:
        self._file = file
        worker = file.with_name("worker-python")
        worker.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec "{sys.executable}" "$@"\n')
        worker.chmod(0o755)
        self.environment = {
            "LD_PRELOAD": str(_library()),
            "PYSPARK_PYTHON": str(worker),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": str(CACHE_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # else Java's timed waits end at once
        }
        self.set(-3600)
        probe = subprocess.run(
            [sys.executable, "-c", "import time; time.sleep(0.01); print(time.time())"],
            env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if probe.returncode:
            raise MissingDependencyError(f"libfaketime does not work here: {probe.stderr.strip()}")

    def set(self, seconds: float) -> None:
        """Make the clock fast, or slow with less than 0."""
        self._file.write_text(f"{seconds:+.0f}s\n")


def _library() -> Path:
    spec = importlib.util.find_spec("libfaketime")
    origin = spec.origin if spec else None
    libraries = [*Path(origin).parent.rglob("libfaketime.so.1")] if origin else []
    if not libraries:
        raise MissingDependencyError("libfaketime is not installed; pip install libfaketime")
    return libraries[0]

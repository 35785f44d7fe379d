"""A job's processes, as `seamark.verify.driver` starts them; here with the tests' own modules and
the archive of Spark's classes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from seamark.verify.driver import MARK, DriverProcess, kill_marked, marked
from tests.class_archive import JAVA_OPTIONS

REPOSITORY = Path(__file__).resolve().parents[2]

_COMMITTED = re.compile(r"epoch=(\d+) status=COMPLETED .* rows=(\d+) .* decision_wait_ms=(\d+)")

SLOWEST = 3
"""A wait may take this many times as long as it says: two slow cores with three tests at once need
it, and a wait that comes to its end takes no longer."""
LONGEST_S = 840
"""Before pytest's own end of a test, which tells nothing of the driver."""

__all__ = ["MARK", "REPOSITORY", "Driver", "kill_marked", "marked", "spark_submit", "wait_until"]


def patient(timeout_s: float) -> float:
    """Return how long a wait may take here."""
    return max(timeout_s, min(SLOWEST * timeout_s, LONGEST_S))


def wait_until(
    what: str, condition: Callable[[], Any], timeout_s: float, pause_s: float = 0.05
) -> Any:
    """Return the first true value of `condition`; AssertionError naming `what` at the timeout. A
    condition that takes long to tell is asked less often: the job that it waits for needs the CPU.
    With a short `pause_s`, for a passing moment, it is not."""
    timeout_s = patient(timeout_s)
    deadline = time.monotonic() + timeout_s
    asked = time.monotonic()
    while not (value := condition()):
        took_s = time.monotonic() - asked
        if asked + took_s > deadline:
            raise AssertionError(f"{what}: not within {timeout_s:g} s")
        time.sleep(pause_s if pause_s < 0.05 else max(pause_s, min(3 * took_s, 2)))
        asked = time.monotonic()
    return value


def spark_submit(*arguments: str) -> list[str]:
    """Return a `launcher`: the spark-submit beside this Python, as in a user's environment."""
    return [str(Path(sys.executable).with_name("spark-submit")), *arguments]


class Driver(DriverProcess):
    """One run of one program of the tests; `options` are its argument, as JSON."""

    def __init__(
        self,
        program: Path,
        options: Mapping[str, Any],
        log: Path,
        failpoint: str | None = None,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (sys.executable,),
    ) -> None:
        variables = {
            # The tests too: a sink of theirs must be found in Spark's workers as well.
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
            "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
            **(environment or {}),
        }
        command = [*launcher, str(program), json.dumps(options)]
        super().__init__(command, log, failpoint, variables)

    def wait(self, timeout_s: float) -> int:
        """Return the exit code; AssertionError at the timeout."""
        return super().wait(patient(timeout_s))

    def jvm(self) -> psutil.Process:
        """Return the Spark JVM."""
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "java" in process.name():
                    return process
        raise AssertionError(f"{self}: it has no JVM")

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to the driver, or to its process group as a terminal does at Ctrl-C."""
        if group:
            os.killpg(self.pid, number)
        else:
            super().send(number)

    def die(self, timeout_s: float = 240.0) -> None:
        """Wait until the armed failpoint has killed the driver; then the rest of the tree dies too.

        Raises AssertionError if it ended in another way, or did not end.
        """
        code = self.wait(timeout_s)
        self.kill_tree()
        if code != -signal.SIGKILL:
            raise AssertionError(f"{self}: exit code {code} instead of SIGKILL\n{self.tail()}")

    def stop(
        self, number: signal.Signals = signal.SIGTERM, timeout_s: float = 30.0, code: int = 0
    ) -> float:
        """Ask it to end, and return the seconds it took; AssertionError unless it ends with `code`
        (a JVM ended by a signal: 128 and the signal)."""
        begun = time.monotonic()
        self.send(number)
        found = super().wait(timeout_s)  # a user waits no longer
        took_s = time.monotonic() - begun
        self.kill_tree()
        if found != code:
            raise AssertionError(f"{self}: exit code {found} after {number.name}\n{self.tail()}")
        return took_s

    def epochs(self) -> dict[int, tuple[int, int]]:
        """Return the epochs it has committed, from its log: rows, and ms from return to commit."""
        return {int(m[1]): (int(m[2]), int(m[3])) for m in _COMMITTED.finditer(self.text())}

    def wait_for_epochs(self, count: int, timeout_s: float = 180.0) -> None:
        """Wait until it has itself committed `count` epochs with rows."""

        def enough() -> bool:
            if self.returncode is not None:
                raise AssertionError(f"{self}: ended with {self.returncode}\n{self.tail()}")
            return sum(rows > 0 for rows, _ in self.epochs().values()) >= count

        try:
            wait_until(f"{self}: {count} epochs", enough, timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from None

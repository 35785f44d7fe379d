"""A job's processes: started as a user starts them, found again whatever becomes of their parents.

A driver is a Python process, its Spark JVM, and Python workers in process groups of their own.
Every process inherits its parent's environment, so a mark in the environment finds the whole tree,
also when the driver is dead and the rest belongs to init.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import psutil

from seamark.model import failpoints

T = TypeVar("T")

MARK = "SEAMARK_CHAOS_RUN"


def marked(mark: str) -> list[psutil.Process]:
    """Return every living process whose environment has this mark."""
    living = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                living.append(process)
    return living


def kill_marked(mark: str) -> None:
    """End every process with this mark by SIGKILL; return when all are gone."""
    while living := marked(mark):
        for process in living:
            _of(process, process.kill)
        time.sleep(0.02)


class DriverProcess:
    """One run of one program, from its start to its death. `failpoint` is the value of
    SEAMARK_FAILPOINT. The program's output goes to `log`. Under spark-submit the driver's own
    process is the JVM, and Python is its child."""

    living: "ClassVar[set[DriverProcess]]" = set()
    """All drivers started here, until their `kill_tree`."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        failpoint: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self.failpoint = failpoint
        self._mark = uuid.uuid4().hex
        # A killed JVM's leftovers go with us. Short: it holds sockets, with short paths only.
        self._scratch = tempfile.mkdtemp(prefix="sm-")
        variables = {**os.environ, **(environment or {})}
        java = variables.get("JAVA_TOOL_OPTIONS", "")
        variables |= {
            "SPARK_LOCAL_DIRS": self._scratch,
            "TMPDIR": self._scratch,
            "JAVA_TOOL_OPTIONS": f"{java} -Djava.io.tmpdir={self._scratch}".strip(),
            MARK: self._mark,
        }
        variables.pop(failpoints.VARIABLE, None)
        if failpoint is not None:
            variables[failpoints.VARIABLE] = failpoint
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=variables,
                cwd=log.parent,
                start_new_session=True,
            )
        self.living.add(self)

    @property
    def pid(self) -> int:
        """The driver's own process id, and the id of its process group (JVM included)."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How the driver ended, negative for a signal; None while it lives."""
        return self._process.poll()

    # --- its tree

    def tree(self) -> list[psutil.Process]:
        """Return every living process of this run."""
        return marked(self._mark)

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers: forked by Spark's daemon, itself not among them."""
        daemons = [p for p in self.tree() if "pyspark.worker" in _command(p)[-1:]]
        ids = {p.pid for p in daemons}
        return [p for p in daemons if p.ppid() in ids]

    def kill_tree(self) -> None:
        """End every process with SIGKILL, like the death of a machine; return when all are gone."""
        if self.returncode is None:  # at once for the driver and its JVM; finding the rest is slow
            os.killpg(self.pid, signal.SIGKILL)
        kill_marked(self._mark)
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.living.discard(self)

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of executors outside of the driver's; none in local mode."""
        return [p for p in self.tree() if any("ExecutorBackend" in part for part in _command(p))]

    @property
    def is_stopped(self) -> bool:
        """Whether one of its processes, not a JVM, is stopped by a signal."""
        stopped = psutil.STATUS_STOPPED
        return any(_of(p, p.status) == stopped and not _is_java(p) for p in self.tree())

    def freeze(self) -> None:
        """SIGSTOP every process, first the JVM: it decides epochs."""
        for process in sorted(self.tree(), key=_is_java, reverse=True):
            _of(process, process.suspend)

    def thaw(self) -> None:
        """SIGCONT every process."""
        for process in self.tree():
            _of(process, process.resume)

    # --- its end

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the driver."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Return the exit code (negative: the signal); AssertionError at the timeout."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self}: alive after {timeout_s:g} s\n{self.tail()}") from None

    # --- its words

    def text(self) -> str:
        """Return all it has said."""
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 40) -> str:
        """Return the last lines it has said."""
        return "\n".join([f"the end of {self.log}:", *self.text().splitlines()[-lines:]])

    def __str__(self) -> str:
        at = f" (failpoint {self.failpoint})" if self.failpoint else ""
        return f"driver {self.log.stem}{at}"


def _of(process: psutil.Process, ask: Callable[[], T]) -> T | None:
    """Ask a process, or tell it something; None if it has ended meanwhile."""
    try:
        return ask()
    except psutil.NoSuchProcess:
        return None


def _is_java(process: psutil.Process) -> bool:
    return "java" in (_of(process, process.name) or "")


def _command(process: psutil.Process) -> list[str]:
    return _of(process, process.cmdline) or []

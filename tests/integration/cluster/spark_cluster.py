"""Spark's standalone cluster from the PySpark package: a master and two workers on one machine.

The workers listen on 127.0.0.2 and 127.0.0.3: Linux gives these to everybody. To Spark they are two
hosts; on a single host it starts no speculative attempt.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil
import pyspark

from seamark.spark.child_jvm import release, start_jvm
from tests.chaos.driver import MARK, kill_marked, marked, wait_until
from tests.class_archive import JAVA_OPTIONS

HOSTS = ("127.0.0.2", "127.0.0.3")
UP_WITHIN_S = 90.0


class SparkCluster:
    """A context manager; `directory` gets the logs. Dies with this process, whatever its end.

    `environment` is that of the workers, and so of drivers and executors.
    """

    def __init__(
        self,
        directory: Path,
        cores: int = 2,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = self._directory = directory
        self._environment = dict(environment or {})
        self._size = ["--cores", str(cores), "--memory", memory]
        self._mark = uuid.uuid4().hex
        self._scratch = tempfile.mkdtemp(prefix="sm-")
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> SparkCluster:
        try:
            master = self._start("127.0.0.1", "master.Master")
            self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
            for log in [self._worker(host) for host in HOSTS]:
                self._said(log, "(Successfully registered) with master")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def executors(self) -> list[psutil.Process]:
        """Return the executors' JVMs."""
        return [p for p in marked(self._mark) if "CoarseGrainedExecutorBackend" in _line(p)]

    def drivers(self) -> list[psutil.Process]:
        """Return the JVMs of drivers in cluster mode."""
        return [p for p in marked(self._mark) if "deploy.worker.DriverWrapper" in _line(p)]

    def replace_worker(self, host: str) -> None:
        """Kill a worker with -9, and start another on its host."""
        (worker,) = [
            p for p in marked(self._mark)
            if "deploy.worker.Worker" in _line(p) and f"--host {host} " in _line(p)
        ]  # fmt: skip
        worker.kill()
        (process,) = [p for p in self._processes if p.pid == worker.pid]
        process.wait()
        self._processes.remove(process)
        release(process)
        self._said(self._worker(host), "(Successfully registered) with master")

    def _worker(self, host: str) -> Path:
        work = self._directory / f"work-{host}"
        return self._start(host, "worker.Worker", *self._size, "--work-dir", str(work), self.url)

    def _start(self, host: str, name: str, *arguments: str) -> Path:
        """Start a daemon of Spark's and return its log."""
        home = Path(pyspark.__file__).parent
        variables = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": self._scratch,
            "PYSPARK_PYTHON": sys.executable,
            "JAVA_TOOL_OPTIONS": f"{JAVA_OPTIONS} -Djava.io.tmpdir={self._scratch}",
            MARK: self._mark,
            **self._environment,
        }
        log = self._directory / f"{name}-{host}.log"
        with log.open("wb") as out:
            process = start_jvm(
                Path(shutil.which("env") or "/usr/bin/env"),
                [
                    *("-u", "PYTHONPATH"),  # executors have the job's own files
                    *(f"{key}={value}" for key, value in variables.items()),
                    str(home / "bin" / "spark-class"),
                    *(f"org.apache.spark.deploy.{name}", "--host", host, "--port", "0"),
                    *("--webui-port", "0", *arguments),
                ],
                out,
            )
        self._processes.append(process)
        return log

    def _said(self, log: Path, pattern: str) -> str:
        def found() -> str | None:
            text = log.read_text(errors="replace")
            assert all(p.poll() is None for p in self._processes), text[-2000:]
            match = re.search(pattern, text)
            return match and match[1]

        return str(wait_until(f"{pattern!r} in {log}", found, UP_WITHIN_S))

    def _end(self) -> None:
        kill_marked(self._mark)
        for process in self._processes:
            process.wait()
            release(process)
        shutil.rmtree(self._scratch, ignore_errors=True)


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.Error, OSError):
        return ""

"""An engine in a process of its own: the parent's side (`Engine`) and the child's (`serve`).

The parent writes one JSON request a line to the child's stdin; the child answers with one line that
begins with MARK, among whatever its engine prints. The children of Flink and Quix Streams run in
environments that have neither Seamark nor its libraries, so this file imports none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

MARK = "@@"
REPOSITORY = Path(__file__).parents[2]
ENVIRONMENTS = REPOSITORY / "build" / "peers"
PACKAGES = {
    "flink": ["setuptools<80", "apache-flink==2.2.1"],
    "quix": ["quixstreams==3.23.1"],
}
FAMILY = {"seamark": "spark", "spark": "spark", "spark-tuned": "spark"}
"""The module of an engine, where it has another name."""


class Running(Protocol):
    """What a child offers. A run names work, source, target, storage, rows and whether it ends."""

    def start(self, run: dict[str, Any]) -> None:
        """Start the job; return when the engine says that it runs."""

    def stop(self) -> None:
        """Stop it, wherever it is."""

    def about(self) -> dict[str, str]:
        """Return versions and settings."""


class RefusedError(RuntimeError):
    """The engine refused a request; the text is its reason."""


class Engine:
    """The process of one engine. `pid` is the root of its tree."""

    def __init__(self, name: str, options: dict[str, Any], log: Path) -> None:
        self.name = name
        module = FAMILY.get(name, name)
        child = json.dumps({**options, "engine": name})
        self._log = log.open("ab")
        self._child = subprocess.Popen(
            [python_of(module), "-m", f"benchmarks.peers.{module}", child],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.pid = self._child.pid
        self.about: dict[str, str] = self.ask("about")

    def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method of the child, and return what it answers."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps([method, arguments]) + "\n")
        self._child.stdin.flush()
        for line in self._child.stdout:
            if line.startswith(MARK):
                answer = json.loads(line.removeprefix(MARK))
                if "error" in answer:
                    raise RefusedError(answer["error"])
                return answer["result"]
        raise RuntimeError(f"{self.name} ended with {self._child.wait()}; see {self._log.name}")

    def require_alive(self) -> None:
        """Raise RuntimeError if the process has ended."""
        if self._child.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self._child.returncode}")

    def kill(self) -> None:
        """End the whole tree with SIGKILL."""
        import psutil

        try:
            root = psutil.Process(self.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            tree = []
        for process in tree:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._child.wait()
        self._log.close()


def python_of(module: str) -> str:
    """Return the Python of an engine; its environment is made at the first call."""
    if module not in PACKAGES:
        return sys.executable
    place = ENVIRONMENTS / module
    python, ready = place / "bin" / "python", place / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        # One after the other: what builds the second may need the first.
        for package in PACKAGES[module]:
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            subprocess.run([*pip, package], check=True)
        ready.touch()
    return str(python)


def serve(running: Running) -> None:
    """Answer the parent until it closes stdin, and then end at once, without a farewell."""
    for line in sys.stdin:
        method, arguments = json.loads(line)
        try:
            answer = {"result": getattr(running, method)(**arguments)}
        except Exception as error:  # the parent decides
            # The second line of one from the JVM is Java's own.
            lines = f"{type(error).__name__}: {error}".splitlines()
            answer = {"error": " ".join(lines[:2])[:300]}
        print(MARK + json.dumps(answer), flush=True)
    os._exit(0)

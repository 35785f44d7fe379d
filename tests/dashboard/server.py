"""The dashboard's server as its users start it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from tests.chaos.driver import REPOSITORY, wait_until


class Answer:
    """A server's answer: `status`, `headers`, and `json` if it has such a body."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Dashboard:
    """`seamark dashboard`, from `with` to its end; `start` starts it again on the same port. It is
    asked at 127.0.0.1, whatever address it tells. `token` is "" where it tells none."""

    def __init__(
        self,
        storage: Path | str,
        home: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._storage = storage
        self._home = home
        self._options = options
        self._environment = dict(environment or {})
        self._log = home / "dashboard.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.token = ""

    @property
    def address(self) -> str:
        """Its output so far."""
        return f"{self.url}/#token={self.token}"

    def __enter__(self) -> Dashboard:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "seamark.cli.main", "dashboard", "--port", port]
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
            "SEAMARK_HOME": str(self._home),
            **self._environment,
        }
        self._home.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--storage", str(self._storage), *self._options],
                stdout=log, stderr=log, env=variables,
            )  # fmt: skip

        def announced() -> str:
            assert self._process is not None and self._process.poll() is None, self.said()
            return next((line for line in self.said().splitlines() if line.startswith("http")), "")

        address = wait_until("the dashboard's address", announced, 120)
        told, _, self.token = address.strip().partition("#token=")
        self.url = f"http://127.0.0.1:{urlsplit(told).port}"

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """End it by SIGTERM; return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(30)

    def said(self) -> str:
        return self._log.read_text()

    def ask(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes | None = None,
    ) -> Answer:
        """Send one request, and return the answer whatever its status."""
        request = urllib.request.Request(self.url + path, body, dict(headers or {}), method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return Answer(refused.code, refused.headers, refused.read())

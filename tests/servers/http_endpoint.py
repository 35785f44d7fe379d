"""A real HTTP endpoint, a process of its own: takes rows by POST and keeps them in SQLite.

    POST /rows[?keep]   appends the body's rows; with `keep`, once for each Idempotency-Key, in one
                        transaction with the key
    GET /rows           every row's number, in the order of arrival
    GET /requests       of each POST: path and headers
    POST /script        a JSON list of what the next POSTs are answered instead: a status, or
                        [status, {header: value}], or "hang", or "lost" (taken, but not answered)

``python -m tests.servers.http_endpoint DATABASE``; the port is its first printed line.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).parents[2]
script: list[Any] = []
requests: list[Any] = []


class Handler(BaseHTTPRequestHandler):
    database: str

    def _answer(self, status: int, body: Any = None, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...

    def do_HEAD(self) -> None:
        self._answer(405)

    def do_GET(self) -> None:
        if self.path == "/requests":
            return self._answer(200, requests)
        with sqlite3.connect(self.database) as connection:
            found = connection.execute("SELECT number FROM rows ORDER BY rowid").fetchall()
        return self._answer(200, [number for (number,) in found])

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/script":
            script[:] = json.loads(body)
            return self._answer(200)
        requests.append([self.path, dict(self.headers)])
        step = script.pop(0) if script else None
        if step == "hang":
            time.sleep(600)
        if isinstance(step, int):
            return self._answer(step, "as the script says")
        if isinstance(step, list):
            return self._answer(step[0], "as the script says", step[1])
        self._take(body)
        if step == "lost":
            return self.connection.close()
        return self._answer(200)

    def _take(self, body: bytes) -> None:
        if self.headers["Content-Type"] == "application/x-ndjson":
            numbers = [json.loads(line)["number"] for line in body.splitlines()]
        else:
            numbers = pa.ipc.open_stream(body).read_all()["number"].to_pylist()
        with (
            contextlib.suppress(sqlite3.IntegrityError),  # a key taken before
            sqlite3.connect(self.database, timeout=60) as connection,
        ):
            if self.path.endswith("?keep"):
                key = self.headers["Idempotency-Key"]
                connection.execute("INSERT INTO keys VALUES (?)", [key])
            connection.executemany("INSERT INTO rows VALUES (?)", [[n] for n in numbers])


class HttpEndpoint:
    """The process, seen from a test."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.http_endpoint", str(directory / "endpoint.db")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def ask(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data)) as answer:
            return json.load(answer)

    def rows(self) -> list[int]:
        return list(self.ask("/rows"))

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def http_endpoint(directory: Path) -> Iterator[HttpEndpoint]:
    """Start an endpoint with an empty database; it ends with the block."""
    endpoint = HttpEndpoint(directory)
    try:
        yield endpoint
    finally:
        endpoint.kill()


def main() -> None:
    Handler.database = sys.argv[1]
    with sqlite3.connect(Handler.database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER)")
        connection.execute("CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY)")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

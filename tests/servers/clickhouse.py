"""ClickHouse's engine behind as much of ClickHouse's HTTP interface as an INSERT needs: `chdb`, a
ClickHouse in a Python package, in a process of its own.

    POST /?query=…&<setting>=…&param_<name>=…    the rows of an INSERT are the body, an Arrow stream
    POST /                                       the query is the body

No ClickHouse server is to be had by pip or Maven. What an engine does with an INSERT and its token
is real; HTTP, logins and a server's own settings are not. pip fetches the package once (180 MB)
into the cache. Its data are on a disk, over `kill` and `restart`.

``python -m tests.servers.clickhouse PORT DIRECTORY`` is the process.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from seamark.dev.server_process import ServerProcess
from seamark.spark.jars import cache_directory
from tests.servers.memory import server_directory
from tests.servers.needed import NotToBeHadError

ROOT = Path(__file__).parents[2]
_OF_HTTP = ("wait_end_of_query",)


class ClickHouse(ServerProcess):
    """An engine with its endpoint at `url`."""

    def __init__(self) -> None:
        self._package = _package()
        super().__init__(server_directory("sm-clickhouse-"), {})
        self.url = f"http://127.0.0.1:{self.port}"

    def ask(self, query: str) -> str:
        """Return the answer to a query, as tab-separated lines."""
        with urllib.request.urlopen(self.url, data=query.encode(), timeout=60) as answer:
            return str(answer.read().decode())

    def _command(self) -> list[object]:
        return [sys.executable, "-m", "tests.servers.clickhouse", self.port, self._root / "data"]

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(map(str, (ROOT, ROOT / "src", self._package)))
        return {**os.environ, "PYTHONPATH": path}

    def _ask(self) -> None:
        self.ask("SELECT 1")


def _package() -> Path:
    """Return the directory of the package, which pip fills at the first call."""
    target = cache_directory("chdb") / "26"
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            partial = target.with_name("partial")
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--upgrade",
                 "--quiet", "--target", partial, "chdb-core==26.*"],
                capture_output=True, text=True, timeout=900, check=False,
            )  # fmt: skip
            if done.returncode:
                raise NotToBeHadError(f"pip install chdb-core: {done.stderr.strip()[-300:]}")
            partial.rename(target)
    return target


class Handler(BaseHTTPRequestHandler):
    session: Any

    def do_POST(self) -> None:
        settings = dict(parse_qsl(urlsplit(self.path).query))
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if "query" not in settings:
            settings["query"], body = body.decode(), b""
        query = settings.pop("query")
        try:
            self._answer(200, self._run(query, body, settings))
        except RuntimeError as error:  # chdb's own
            self._answer(500, str(error))

    def _run(self, query: str, body: bytes, given: dict[str, str]) -> str:
        values = {n.removeprefix("param_"): v for n, v in given.items() if n.startswith("param_")}
        settings = {n: v for n, v in given.items() if not n.startswith("param_")}
        options = ", ".join(f"{n} = '{v}'" for n, v in settings.items() if n not in _OF_HTTP)
        with tempfile.NamedTemporaryFile() as rows:
            if body:
                rows.write(body)
                rows.flush()
                query, found = re.subn(
                    r" FORMAT ArrowStream$",
                    f" FROM INFILE '{rows.name}' SETTINGS {options} FORMAT ArrowStream",
                    query,
                )
                assert found, query
            return str(self.session.query(query, "TSV", params=values))

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def main() -> None:
    from chdb.session import Session  # type: ignore[import-not-found]

    Handler.session = Session(sys.argv[2])
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()

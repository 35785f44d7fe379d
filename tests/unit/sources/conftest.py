"""A small HTTP server with the interface of a schema registry, for Confluent's client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Server:
    """`answers` are given one after another by path, the last of each for ever; to what is posted
    (`posted`) by ``POST`` and the path."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.asked: list[str] = []
        self.posted: list[Any] = []
        answers, asked, posted = self.answers, self.asked, self.posted

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(self.path.partition("?")[0])

            def do_POST(self) -> None:
                posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self._answer(f"POST {self.path.partition('?')[0]}")

            def _answer(self, path: str) -> None:
                asked.append(path)
                left = answers.get(self.path) or answers[path]
                status, body = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    serving = threading.Thread(target=made.http.serve_forever, args=(0.01,))
    serving.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    serving.join()

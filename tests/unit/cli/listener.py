"""An HTTP server at the address of a record's driver; notes its requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Listener:
    """From `with` to its end: answers each path of `pages` with its value as JSON, or with its
    HTTPStatus, all others with `{}`.

    `seen` has the method, path and ``Authorization`` header of each request, `bodies` the bodies.
    """

    def __init__(self, pages: Mapping[str, Any]) -> None:
        self.pages = dict(pages)
        self.seen: list[tuple[str, str, str | None]] = []
        self.bodies: list[bytes] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                listener.seen.append((self.command, self.path, self.headers["Authorization"]))
                listener.bodies.append(self.rfile.read(int(self.headers["Content-Length"] or 0)))
                page = listener.pages.get(f"{self.command} {self.path}", {})
                body = page if isinstance(page, bytes) else json.dumps(page).encode()
                self.send_response(page if isinstance(page, HTTPStatus) else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Listener:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

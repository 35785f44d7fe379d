"""A real HTTP proxy before a real S3 server; it weakens conditional writes, as some servers do.

`Weakness.IGNORES`: the condition is dropped. `LOOKS_FIRST`: the key is looked at, and written
without the condition if it was not there. `LOSES_REPLY`: the first conditional write is done, but
its answer never comes. The server behind must not want signatures (``LocalS3(signed=False)``).
"""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Weakness = Enum("Weakness", "IGNORES LOOKS_FIRST LOSES_REPLY")


class WeakS3:
    """The proxy, as a context manager; `endpoint` is its address."""

    def __init__(self, port_behind: int, weakness: Weakness) -> None:
        self.replies_lost = 0
        self.looking, self.looked = threading.Condition(), Counter[str]()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _forward(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                headers = {k: v for k, v in self.headers.items() if k.lower() != "expect"}
                conditional = "if-none-match" in {k.lower() for k in headers}
                if conditional and weakness is not Weakness.LOSES_REPLY:
                    headers = {k: v for k, v in headers.items() if k.lower() != "if-none-match"}
                    if weakness is Weakness.LOOKS_FIRST:
                        if self._ask("HEAD", {}, b"")[0] == 200:
                            self._reply(412, [], b"")
                            return
                        with proxy.looking:  # until another writer has looked too
                            proxy.looked[self.path] += 1
                            proxy.looking.notify_all()
                            proxy.looking.wait_for(lambda: proxy.looked[self.path] > 1, 2)
                status, found, content = self._ask(self.command, headers, body)
                if conditional and weakness is Weakness.LOSES_REPLY and not proxy.replies_lost:
                    proxy.replies_lost += 1
                    self.close_connection = True
                    return
                self._reply(status, found, content)

            def _ask(self, method: str, headers: dict[str, str], body: bytes) -> Any:
                connection = http.client.HTTPConnection("127.0.0.1", port_behind, timeout=30)
                connection.request(method, self.path, body=body or None, headers=headers)
                answer = connection.getresponse()
                result = answer.status, answer.getheaders(), answer.read()
                connection.close()
                return result

            def _reply(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
                self.send_response_only(status)
                sized = False
                for key, value in headers:
                    if key.lower() not in ("transfer-encoding", "connection"):
                        sized = sized or key.lower() == "content-length"
                        self.send_header(key, value)
                if not sized:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> WeakS3:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

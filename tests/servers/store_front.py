"""What obstore and delta-rs ask of a store, in front of servers that lack it.

Google's XML interface for fake-gcs-server, which has its JSON interface and reads alone: each write
becomes one multipart request of the JSON interface, the one kind whose condition
(``x-goog-if-generation-match``) holds there. So a copy is read and written here, and the parts of
an upload are kept here until they are put together. For it and Azurite: a listing's beginning
(``start-after``, ``startFrom``), which both ignore. Everything else is passed on.

A process of its own: delta-rs reads with Python's lock held.
"""

from __future__ import annotations

import hashlib
import html
import http.client
import itertools
import json
import re
import sys
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

_HOPS = {"connection", "content-length", "transfer-encoding", "host"}


_LISTED = re.compile(rb"<(Blob|Contents)>(?:(?!</\1>).)*?<(?:Name|Key)>(.*?)</.*?</\1>", re.DOTALL)


class _Front(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, behind: int) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.behind = behind
        self.parts: dict[str, dict[str, bytes]] = {}
        self.numbers = itertools.count(1)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer in two packets would wait for the first one's receipt
    server: _Front

    def do_PUT(self) -> None:
        asked = self._asked()
        if self._is_passed_on():
            self._pass_on()
        elif "partNumber" in asked:
            data = self._body()
            self.server.parts[asked["uploadId"]][asked["partNumber"]] = data
            self._say(200, b"", hashlib.md5(data).hexdigest())
        elif source := self.headers.get("x-goog-copy-source"):
            status, _, data = self._ask("GET", f"/{source.lstrip('/')}", self._body(), {})
            if status == 200:
                self._upload(data)
            else:
                self._say(status, data)
        else:
            self._upload(self._body())

    def do_POST(self) -> None:
        asked = self._asked()
        if "uploads" in asked:
            upload = f"upload-{next(self.server.numbers)}"
            self.server.parts[upload] = {}
            told = f"<UploadId>{upload}</UploadId>"
            self._say(200, _xml("InitiateMultipartUploadResult", told))
        elif "uploadId" in asked and not self._is_passed_on():
            root = ElementTree.fromstring(self._body())
            numbers = [one.text or "" for one in root.iter() if one.tag.endswith("PartNumber")]
            parts = self.server.parts.pop(asked["uploadId"], None)
            if parts is None:
                self._say(404, b"")
            else:
                self._upload(b"".join(parts[number] for number in numbers))
        else:
            self._pass_on()

    def do_DELETE(self) -> None:
        if upload := self._asked().get("uploadId"):
            self.server.parts.pop(upload, None)
            self._say(204, b"")
        else:
            self._pass_on()

    def do_GET(self) -> None:
        self._pass_on()

    def do_HEAD(self) -> None:
        self._pass_on()

    def _is_passed_on(self) -> bool:
        google_json = ("/upload/", "/storage/", "/resumable/")
        return "x-ms-version" in self.headers or self.path.startswith(google_json)

    def _upload(self, data: bytes) -> None:
        path = f"/upload/storage/v1/b/{self._bucket()}/o?uploadType=multipart"
        condition = self.headers.get("x-goog-if-generation-match")
        path += f"&ifGenerationMatch={condition}" if condition is not None else ""
        mark = uuid.uuid4().hex
        described = json.dumps({"name": self._name()})
        begin = f"--{mark}\r\nContent-Type: application/json\r\n\r\n{described}\r\n--{mark}\r\n"
        body = b"".join((begin.encode(), b"\r\n", data, f"\r\n--{mark}--".encode()))
        kind = {"Content-Type": f"multipart/related; boundary={mark}"}
        status, _, answer = self._ask("POST", path, body, kind)
        if status >= 300:
            self._say(status, answer)
        else:
            etag = hashlib.md5(data).hexdigest()
            self._say(200, _xml("CompleteMultipartUploadResult", f"<ETag>{etag}</ETag>"), etag)

    def _pass_on(self) -> None:
        given = {name: text for name, text in self.headers.items() if name.lower() not in _HOPS}
        status, headers, body = self._ask(self.command, self.path, self._body(), given)
        asked = self._asked()
        if start := asked.get("startFrom") or asked.get("start-after"):
            body = _LISTED.sub(
                lambda found: found[0] if html.unescape(found[2].decode()) >= start else b"", body
            )
        self.send_response_only(status)
        for name, text in headers:
            if name.lower() not in _HOPS or (
                self.command == "HEAD" and name.lower() == "content-length"
            ):
                self.send_header(name, text)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _ask(
        self, method: str, path: str, data: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        line = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        try:
            line.request(method, path, data, headers)
            answer = line.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            line.close()

    def _say(self, status: int, body: bytes, etag: str = "") -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _asked(self) -> dict[str, str]:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: texts[0] for name, texts in query.items()}

    def _bucket(self) -> str:
        return unquote(urlsplit(self.path).path.split("/")[1])

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path.split("/", 2)[2])

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _xml(tag: str, inner: str) -> bytes:
    return f"<{tag}><Bucket>b</Bucket><Key>k</Key>{inner}</{tag}>".encode()


if __name__ == "__main__":
    _Front(int(sys.argv[1]), int(sys.argv[2])).serve_forever()

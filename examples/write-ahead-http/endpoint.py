"""Takes orders by POST at two addresses, and shows their numbers by GET.

`python endpoint.py [PORT]`. `/keeps-tokens` keeps each request's Idempotency-Key in one transaction
with its rows, and drops a request whose key it has; `/forgets-tokens` takes every request. Rows and
keys are in `endpoint.db`, so they survive a `kill -9` of this program.
"""

import json
import sqlite3
import sys
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def connected() -> sqlite3.Connection:
    return sqlite3.connect("endpoint.db", timeout=60)


class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        # A key that is there fails the whole transaction: its rows came with it.
        with closing(connected()) as db, suppress(sqlite3.IntegrityError), db:
            if self.path == "/keeps-tokens":
                db.execute("INSERT INTO keys VALUES (?)", [self.headers["Idempotency-Key"]])
            rows = [(self.path, line.decode()) for line in body.splitlines()]
            db.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:  # the job asks at its start whether somebody is there
        self._answer()

    def _answer(self) -> None:
        with closing(connected()) as db:
            counted = db.execute("SELECT path, count(*) FROM rows GROUP BY path ORDER BY path DESC")
            shown = json.dumps(dict(counted.fetchall()))
        self.send_response(200)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(shown.encode() + b"\n")

    def log_message(self, *_: object) -> None:
        pass


with closing(connected()) as db:
    db.execute("CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY)")
    db.execute("CREATE TABLE IF NOT EXISTS rows (path TEXT, line TEXT)")
with ThreadingHTTPServer(("127.0.0.1", int([*sys.argv, "8000"][1])), Endpoint) as server:
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()

"""The order service of docs/write-a-sink.md: ``python hold_service.py PORT DATABASE``.

Everything is in SQLite before the answer, so a kill -9 loses nothing answered.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DATABASE = sys.argv[2] if len(sys.argv) > 2 else ""


class Service(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        with self._database() as database:
            if self.path == "/holds":
                names = database.execute("SELECT name FROM holds WHERE confirmed = 0").fetchall()
                self._answer(200, [name for (name,) in names])
            else:
                kept = database.execute("SELECT rows FROM holds WHERE confirmed = 1").fetchall()
                self._answer(200, [row for (text,) in kept for row in json.loads(text)])

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with self._database() as database:
            database.execute("INSERT INTO holds VALUES (?, 0, ?)", (self._name(), body))
        self._answer(201)

    def do_POST(self) -> None:
        if self.path.startswith("/check/"):
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bad = [i for i, row in enumerate(rows) if row["number"] < 0]
            self._answer(200, [[i, "a number must not be negative"] for i in bad])
            return
        with self._database() as database:
            was = self._state(database)
            if was == 0:
                database.execute("UPDATE holds SET confirmed = 1 WHERE name = ?", (self._name(),))
        self._answer({None: 404, 0: 200, 1: 208}[was])

    def do_DELETE(self) -> None:
        with self._database() as database:
            was = self._state(database)
            if was == 0:
                database.execute("DELETE FROM holds WHERE name = ?", (self._name(),))
        self._answer({None: 404, 0: 200, 1: 409}[was])

    def log_message(self, *_: object) -> None:
        pass

    def _name(self) -> str:
        return self.path.split("/")[2]

    def _state(self, database: sqlite3.Connection) -> int | None:
        database.execute("BEGIN IMMEDIATE")  # of a confirm and a drop at once one is the first
        found = database.execute("SELECT confirmed FROM holds WHERE name = ?", (self._name(),))
        return next((confirmed for (confirmed,) in found), None)

    def _database(self) -> sqlite3.Connection:
        database = sqlite3.connect(DATABASE, timeout=30)
        database.execute("CREATE TABLE IF NOT EXISTS holds (name PRIMARY KEY, confirmed, rows)")
        return database

    def _answer(self, status: int, content: object = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service) as server:
        print(server.server_port, flush=True)
        server.serve_forever()

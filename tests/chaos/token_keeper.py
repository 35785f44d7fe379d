"""A user's write-ahead sink, for a target with a table of tokens: a database, taking an epoch's
rows and their token in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

import seamark as sm


@dataclass(frozen=True)
class TokenKeeper(sm.WriteAheadSink):
    path: str
    idempotent: bool = True

    def describe(self) -> str:
        return f"rows and tokens in {self.path}"

    def send(self, batches: Iterator[pa.RecordBatch], token: sm.EpochToken) -> None:
        with (
            contextlib.closing(sqlite3.connect(self.path, timeout=60)) as connection,
            contextlib.suppress(sqlite3.IntegrityError),  # a token taken before
            connection,
        ):
            connection.execute("CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY)")
            connection.execute("CREATE TABLE IF NOT EXISTS rows (key TEXT, value TEXT)")
            connection.execute("INSERT INTO tokens VALUES (?)", [str(token)])
            for batch in batches:
                rows = zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
                connection.executemany("INSERT INTO rows VALUES (?, ?)", rows)

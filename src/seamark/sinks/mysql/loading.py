"""Loads one Arrow batch into a table, and checks that every row arrived unchanged.

LOAD DATA LOCAL turns errors into warnings, even in strict mode: it skips a row with a used key,
cuts a long text, turns a null into 0. So a warning is an error here, and so is a missing row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from seamark.model.errors import WriteRefusedError
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql.row_text import load_data_text, values_text

_INSERT_BYTES = 1 << 20


class Loader:
    """Loads batches over one connection into one table.

    `text_columns`: columns whose bytes must be declared as UTF-8 (see `TableColumn.takes_bytes`).
    """

    def __init__(
        self, connection: Any, table: str, columns: Sequence[str], text_columns: Sequence[str]
    ) -> None:
        ((on, packet),) = server.rows(connection, "SELECT @@local_infile, @@max_allowed_packet")
        self._connection = connection
        self._table = table
        self._local_infile = bool(on)
        self._packet_bytes = int(packet)
        self._insert_bytes = min(_INSERT_BYTES, self._packet_bytes // 2)
        names = ", ".join(map(server.quoted, columns))
        self._insert = f"INSERT INTO {table} ({names}) VALUES ".encode()
        targets, conversions = [], []
        for i, name in enumerate(columns):
            if name in text_columns:
                targets.append(f"@seamark_{i}")
                converted = f"CONVERT(@seamark_{i} USING utf8mb4)"
                conversions.append(f"{server.quoted(name)} = {converted}")
            else:
                targets.append(server.quoted(name))
        # The text holds binary columns too. A string's bytes are still checked to be UTF-8.
        self._load = (
            f"INTO TABLE {table} CHARACTER SET binary FIELDS TERMINATED BY ',' "
            "OPTIONALLY ENCLOSED BY '\\'' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
            f"({', '.join(targets)})" + (f" SET {', '.join(conversions)}" if conversions else "")
        )

    def load(self, batch: pa.RecordBatch) -> None:
        """Load every row unchanged, or raise WriteRefusedError."""
        if why := self.refusal(batch):
            raise WriteRefusedError(
                f"MySQL table {self._table} does not take the rows as they are: {why}. Widen the "
                "column, or change the rows before the sink"
            )

    def refusal(self, batch: pa.RecordBatch) -> str:
        """Load every row unchanged and return "", or return the server's reason to refuse one. Some
        rows may then have been loaded, altered or not."""
        if self._local_infile:
            return self._run(self._load_data(batch), batch.num_rows)
        for text, rows in values_text(batch, self._insert_bytes):
            statement = self._insert + bytes(text)
            # The server would close the connection, and with it the transaction.
            if len(statement) >= self._packet_bytes:
                return (
                    f"a row needs a statement of {len(statement)} bytes, and max_allowed_packet is "
                    f"{self._packet_bytes}"
                )
            if why := self._run(statement, rows):
                return why
        return ""

    def _load_data(self, batch: pa.RecordBatch) -> Any:
        def run(cursor: Any) -> None:
            # A file in memory: the driver takes only the name of a file.
            with os.fdopen(os.memfd_create("seamark"), "wb") as file:
                file.write(load_data_text(batch))
                file.flush()
                cursor.execute(
                    f"LOAD DATA LOCAL INFILE '/proc/self/fd/{file.fileno()}' {self._load}"
                )

        return run

    def _run(self, statement: Any, rows: int) -> str:
        errors = server.driver().MySQLError
        with self._connection.cursor() as cursor:
            try:
                if callable(statement):
                    statement(cursor)
                else:
                    cursor.execute(statement)
            except errors as error:
                if server.is_refused_row(error):
                    return str(error.args[-1])
                raise
            loaded, warnings = cursor.rowcount, cursor.warning_count
        if warnings:
            found = server.rows(self._connection, "SHOW WARNINGS LIMIT 3")
            return "; ".join(str(message) for _, _, message in found)
        return "" if loaded == rows else f"{loaded} of {rows} rows were taken"

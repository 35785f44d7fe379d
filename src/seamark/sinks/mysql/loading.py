"""Turns one Arrow batch into SQL text and loads it; checks that every row arrived unchanged.

The text is made of whole columns, without a Python object for a row. A value has the same text in
LOAD DATA and in INSERT: numbers bare, NULL bare, everything else in single quotes with quotes and
backslashes escaped. Newlines and NUL stay unchanged inside quotes.

LOAD DATA LOCAL turns errors into warnings, even in strict mode: it skips a row with a used key,
cuts a long text, turns a null into 0. So a warning is an error here, and so is a missing row.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seamark.contracts.record_batches import constants, null_where, text_scalar
from seamark.contracts.text_forms import as_text
from seamark.model.errors import WriteRefusedError
from seamark.sinks.internal.columns import pieces
from seamark.sinks.mysql import connection as server
from seamark.sinks.mysql.table import TableColumn

_INSERT_BYTES = 1 << 20


def load_data_text(batch: pa.RecordBatch) -> memoryview:
    """Return the rows in the format of LOAD DATA: fields separated by commas, each row ended by a
    newline, enclosed by single quotes where needed, escaped by backslashes."""
    text = _rows_of(batch, b"", b"\n", binary_prefix=b"")
    return next(pieces(text, 2**62))[0]


def values_text(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the rows as written after VALUES, in pieces of at most `limit_bytes` (but at least one
    row), each with its number of rows."""
    text = _rows_of(batch, b"(", b"),", binary_prefix=b"_binary")
    for piece, start, end in pieces(text, limit_bytes):
        yield piece[:-1], end - start


def _rows_of(
    batch: pa.RecordBatch, before: bytes, after: bytes, binary_prefix: bytes
) -> pa.LargeBinaryArray:
    fields = [
        _field(name, column, binary_prefix)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    if before:
        fields[0] = _around(before, fields[0], b"")
    fields[-1] = _around(b"", fields[-1], after)
    return pc.binary_join_element_wise(*fields, _bytes(b","))


def _field(name: str, column: pa.Array, binary_prefix: bytes) -> pa.LargeBinaryArray:
    """Return the column's values as SQL text; the result holds no null."""
    kind = column.type
    if pa.types.is_null(kind):
        return pc.fill_null(pa.nulls(len(column), pa.large_binary()), _bytes(b"NULL"))
    if pa.types.is_boolean(kind):
        text = column.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_floating(kind):
        if pc.any(pc.is_inf(column)).as_py():
            raise WriteRefusedError(
                f"column {name!r} holds an infinite number, which MySQL has not; replace it, e.g. "
                f"with nullif({name}, double('Infinity'))"
            )
        text = null_where(pc.is_nan(column), column).cast(pa.string())
        # An integer has no -0.
        text = pc.if_else(pc.equal(text, text_scalar("-0")), text_scalar("-0e0"), text)
    elif pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        text = as_text(column).cast(pa.string())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        plain = pc.replace_substring(as_text(column), "Z", "")
        text = _around(b"'", plain.cast(pa.large_binary()), b"'")
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = _around(b"'", _escaped(column), b"'")
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        text = _around(binary_prefix + b"'", _escaped(column), b"'")
    else:
        raise WriteRefusedError(f"column {name!r} has the Arrow type {kind}, which is not stored")
    return pc.fill_null(text.cast(pa.large_binary()), _bytes(b"NULL"))


def _escaped(column: pa.Array) -> pa.LargeBinaryArray:
    column = column.cast(pa.large_binary())
    for character in (b"\\", b"'"):  # in this order: the second adds backslashes
        # Searching is much cheaper than replacing.
        if pc.any(pc.match_substring(column, character)).as_py():
            column = pc.replace_substring(column, character, b"\\" + character)
    return column


def _around(before: bytes, column: pa.LargeBinaryArray, after: bytes) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(_bytes(before), column, _bytes(after), _bytes(b""))


def _bytes(value: bytes) -> pa.Scalar:
    return constants(value).cast(pa.large_binary())[0]


class Loader:
    """Loads batches over one connection into one table.

    `text_columns`: columns whose bytes must be declared as UTF-8 (see `TableColumn.takes_bytes`).
    `narrow`: those that alter some texts (see `TableColumn.altered_texts`).
    """

    def __init__(
        self,
        connection: Any,
        table: str,
        columns: Sequence[str],
        text_columns: Sequence[str],
        narrow: Mapping[str, TableColumn],
    ) -> None:
        self._narrow = narrow
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
                f"MySQL table {self._table} does not take the rows as they are: {why}. Raise "
                "that limit or widen the column, or change the rows before the sink"
            )

    def refusal(self, batch: pa.RecordBatch) -> str:
        """Load every row unchanged and return "", or return the server's reason to refuse one. Some
        rows may then have been loaded, altered or not."""
        for name, column in self._narrow.items():
            texts = batch.column(name)
            if pc.any(column.altered_texts(texts)).as_py():
                return f"column {name!r}, {column.data_type.upper()}, would alter a text"
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
            return server.warnings(self._connection)
        return "" if loaded == rows else f"{loaded} of {rows} rows were taken"

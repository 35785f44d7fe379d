"""Arrow batches into the bytes of each file format, without a Python object per row."""

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from seamark.sinks.internal.columns import datetimes_as_text
from seamark.sinks.internal.parquet import ParquetEncoder

COMPRESSIONS: dict[str, tuple[str, ...]] = {
    "parquet": ("snappy", "zstd", "gzip", "lz4", "none"),
    "json": ("none", "gzip"),
    "csv": ("none", "gzip"),
}
"""By format, the compressions taken by all of its readers; the default first."""
JSON_COLUMN = "_seamark_json"
"""The one column that the writer of JSON gets: whole objects, as text."""
_TEXT = pa.large_string()
"""64-bit offsets: the joined text of a batch may pass 2 GiB."""


class Output(Protocol):
    """The file behind an encoder."""

    def write(self, data: Any, /) -> int:
        """Take bytes, or a buffer valid only until the call returns."""


class Encoder(Protocol):
    """Writes batches of one schema into an open file."""

    @property
    def buffered_bytes(self) -> int:
        """The bytes kept in memory."""

    def expected_bytes(self, written: int) -> int:
        """Return the size that the file would have if it were closed now, about. `written` bytes
        are in it."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch. Its buffers are valid only until the call returns."""

    def flush(self) -> None:
        """Write the rows kept in memory."""

    def close(self) -> None:
        """Write the remaining rows; the file itself stays open."""


@dataclass(frozen=True)
class Format:
    """The chosen format with its options, and the maker of its encoder."""

    name: str
    compression: str
    header: bool = True
    delimiter: str = ","
    null_value: str = ""
    escape: str = '"'

    @property
    def null_as_read(self) -> str:
        """The text for null as read by one who takes escapes outside of quotation marks too."""
        return re.sub(r"\\(.)", r"\1", self.null_value) if self.escape == "\\" else self.null_value

    @property
    def extension(self) -> str:
        """The files' extension; readers take the compression of text from it."""
        packed = self.name != "parquet" and self.compression == "gzip"
        return f"{self.name}.gz" if packed else self.name

    def encoder(self, file: Output, schema: pa.Schema, target_bytes: int = 0) -> Encoder:
        """Return an encoder that writes into `file`, whose wanted size is `target_bytes`; 0 is
        none."""
        if self.name == "parquet":
            return ParquetEncoder(file, schema, self.compression, target_bytes)
        text = JsonText() if self.name == "json" else CsvText(self)
        return TextEncoder(file, text, packed=self.compression == "gzip")


class TextEncoder:
    """Writes lines, compressed or plain."""

    buffered_bytes = 0

    def __init__(self, file: Any, text: "JsonText | CsvText", *, packed: bool) -> None:
        self._file: Any = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if packed else file
        self._packed, self._text, self._begun = packed, text, False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the batch's lines, after the header if they are the first."""
        if not self._begun:
            self._file.write(self._text.header(batch.schema.names))
            self._begun = True
        lines = self._text.lines(batch)
        _, offsets, data = lines.buffers()
        bounds = memoryview(offsets).cast("q")
        start, end = bounds[lines.offset], bounds[lines.offset + len(lines)]
        self._file.write(memoryview(data)[start:end])

    def expected_bytes(self, written: int) -> int:
        """See `Encoder`: every line is written already."""
        return written

    def flush(self) -> None:
        """Do nothing: every line is written already."""

    def close(self) -> None:
        """End the compressed stream."""
        if self._packed:
            self._file.close()  # not the file below it


class JsonText:
    """One text column of whole JSON objects."""

    def header(self, names: Sequence[str]) -> bytes:
        """Return nothing: JSON lines have no header."""
        return b""

    def lines(self, batch: pa.RecordBatch) -> pa.Array:
        """Return each row's text with a line end."""
        return _with_line_ends(batch.column(0).cast(_TEXT))


class CsvText:
    """Records by RFC 4180, with line feeds, or with a backslash before each quotation mark and
    backslash. Quotes a text only where it must: also an empty text, one that reads as null, and
    one with an escape, which readers differ in outside of quotation marks; and one that begins with
    a byte order mark, which readers drop at the beginning of a file."""

    def __init__(self, options: Format) -> None:
        self._options = options
        marks = {options.delimiter, '"', "\r", "\n", options.escape}
        special = "".join(f"\\x{{{ord(one):x}}}" for one in sorted(marks))
        self._special = rf"[{special}]|^[\s\x{{feff}}]|\s$|^$"
        self._escaped = sorted({'"', options.escape}, reverse=True)
        """In this order: escapes of a quotation mark are not escaped again."""
        self._nulls = pa.array([options.null_value, options.null_as_read], _TEXT)

    def header(self, names: Sequence[str]) -> bytes:
        """Return the header line, or nothing."""
        if not self._options.header:
            return b""
        quoted = self._quoted(pa.array(names, _TEXT)).to_pylist()
        return (self._options.delimiter.join(quoted) + "\n").encode()

    def lines(self, batch: pa.RecordBatch) -> pa.Array:
        """Return each row's record."""
        columns = []
        for column in datetimes_as_text(batch).columns:
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            column = column.cast(_TEXT)
            column = self._quoted(column) if is_text else column
            columns.append(pc.fill_null(column, self._options.null_value))
        return _with_line_ends(
            pc.binary_join_element_wise(*columns, pa.scalar(self._options.delimiter, _TEXT))
        )

    def _quoted(self, column: pa.Array) -> pa.Array:
        escaped = column
        for one in self._escaped:
            escaped = pc.replace_substring(escaped, one, self._options.escape + one)
        mark = pa.scalar('"', _TEXT)
        whole = pc.binary_join_element_wise(mark, escaped, mark, pa.scalar("", _TEXT))
        must = pc.or_(
            pc.match_substring_regex(column, self._special), pc.is_in(column, self._nulls)
        )
        return pc.if_else(must, whole, column)


def _with_line_ends(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(column, pa.scalar("", _TEXT), pa.scalar("\n", _TEXT))

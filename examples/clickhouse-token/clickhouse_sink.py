"""A write-ahead sink for ClickHouse: each INSERT has the epoch's token and its number."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pyarrow as pa

import seamark as sm

KEEPS_TOKENS = """
    SELECT count() FROM system.tables WHERE database = currentDatabase() AND name = {table:String}
    AND (engine LIKE 'Replicated%MergeTree' OR engine LIKE 'Shared%MergeTree'
         OR match(engine_full, 'non_replicated_deduplication_window = [1-9]'))
"""

TYPES = """
    SELECT name, type FROM system.columns
    WHERE database = currentDatabase() AND table = {table:String}
"""
HOLDS = {
    "int8": r"Int\d+", "int16": "Int(16|32|64|128|256)", "int32": "Int(32|64|128|256)",
    "int64": "Int(64|128|256)", "float": "Float(32|64)", "double": "Float64", "bool": "Bool",
    "string": "String", "large_string": "String", "binary": "String", "large_binary": "String",
    "date32[day]": "Date(32)?",
}  # fmt: skip
"""The types of a column that keep each value of an Arrow type, or refuse it."""


@dataclass(frozen=True)
class ClickHouseSink(sm.WriteAheadSink):
    """Inserts the rows into the columns of `table` with the same names, over HTTP.

    rows_per_insert: it is in the token, which stands for the same rows for ever: after a change an
        epoch that was sent and not recorded comes twice.
    """

    url: str
    table: str
    rows_per_insert: int = 100_000
    idempotent: bool = True

    def describe(self) -> str:
        return f"table {self.table} at {self.url}"

    def check_target(self) -> None:
        try:
            keeps_tokens = int(self._ask(KEEPS_TOKENS, param_table=self.table))
        except (OSError, sm.SendRefusedError) as error:
            raise sm.PreflightError(f"{self.describe()}: {error}; start it") from error
        if not keeps_tokens:
            raise sm.PreflightError(
                f"{self.describe()} is no MergeTree table that keeps insert tokens; create it "
                "with SETTINGS non_replicated_deduplication_window = 1000, or replicated"
            )

    def send(self, batches: Iterator[pa.RecordBatch], token: sm.EpochToken) -> None:
        rows = pa.Table.from_batches(batches)
        self._require_types(rows.schema)
        columns = ", ".join(f"`{name}`" for name in rows.column_names)
        for number, start in enumerate(range(0, rows.num_rows, self.rows_per_insert)):
            (block,) = rows.slice(start, self.rows_per_insert).combine_chunks().to_batches()
            body = pa.BufferOutputStream()
            with pa.ipc.new_stream(body, block.schema) as stream:
                stream.write_batch(block)
            self._ask(
                f"INSERT INTO `{self.table}` ({columns}) FORMAT ArrowStream",
                body.getvalue().to_pybytes(),
                insert_deduplicate="1",
                insert_deduplication_token=f"{token}-{self.rows_per_insert}-{number}",
                async_insert="0",  # its blocks have rows of several inserts
                input_format_null_as_default="0",  # a null would become 0 or ""
                wait_end_of_query="1",  # an error comes as the status, not behind a 200
            )

    def _require_types(self, rows: pa.Schema) -> None:
        """ClickHouse converts values without a word: numbers wrap, digits are cut off."""
        told = self._ask(TYPES, param_table=self.table).replace("\\'", "'").splitlines()
        types = dict(line.split("\t", 1) for line in told)
        for field in rows:
            if not re.fullmatch(_holds(field.type), types.get(field.name, "")):
                raise sm.SendRefusedError(
                    f"column {field.name} of {self.table} is {types.get(field.name, 'missing')}, "
                    f"which may alter values of {field.type}: alter it, or CAST in the DataFrame"
                )

    def _ask(self, query: str, body: bytes = b"", **settings: str) -> str:
        request = Request(f"{self.url}/?{urlencode({'query': query, **settings})}", body)
        try:
            with urlopen(request, timeout=60) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            said = f"it answers {error.code}: {error.read(500).decode(errors='replace')}"
            raise (ConnectionError if error.code >= 500 else sm.SendRefusedError)(said) from None


def _holds(kind: pa.DataType) -> str:
    """Return a pattern of the types of a column that keep each value of an Arrow type."""
    if pa.types.is_list(kind):
        return rf"Array\({_holds(kind.value_type)}\)"
    if pa.types.is_map(kind):
        return rf"Map\({_holds(kind.key_type)}, {_holds(kind.item_type)}\)"
    if pa.types.is_struct(kind):
        fields = ", ".join(rf"`?{re.escape(f.name)}`? {_holds(f.type)}" for f in kind)
        return rf"Tuple\({fields}\)"
    if pa.types.is_decimal(kind):
        plain = rf"Decimal\({kind.precision}, {kind.scale}\)"
    elif pa.types.is_timestamp(kind):
        plain = r"DateTime64\(6(, '[^']*')?\)" if kind.tz else r"DateTime64\(6, 'UTC'\)"
    else:
        plain = HOLDS.get(str(kind), "String")
    return rf"({plain}|Nullable\({plain}\)|LowCardinality\((Nullable\()?{plain}\)+)"

"""A write-ahead sink for ClickHouse: each INSERT has the epoch's token and its number."""

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
                wait_end_of_query="1",  # an error comes as the status, not behind a 200
            )

    def _ask(self, query: str, body: bytes = b"", **settings: str) -> str:
        request = Request(f"{self.url}/?{urlencode({'query': query, **settings})}", body)
        try:
            with urlopen(request, timeout=60) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            said = f"it answers {error.code}: {error.read(500).decode(errors='replace')}"
            raise (ConnectionError if error.code >= 500 else sm.SendRefusedError)(said) from None

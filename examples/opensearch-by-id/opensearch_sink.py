"""A write-ahead sink for OpenSearch: each row is a document, and a column has its id."""

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa

import seamark as sm


@dataclass(frozen=True)
class OpenSearchSink(sm.WriteAheadSink):
    """Creates a document for each `id`, once. With `version`, a column of whole numbers that grow
    with each change of an id, it keeps the newest row of each id."""

    url: str
    index: str
    id: str
    version: str | None = None
    idempotent: bool = True

    def describe(self) -> str:
        return f"index {self.index} at {self.url}"

    def check_target(self) -> None:
        try:
            self._ask("GET", "_settings")
        except (OSError, sm.SendRefusedError) as error:
            remedy = "start it, or create the index: one made by its first row has guessed types"
            raise sm.PreflightError(f"{self.describe()}: {error}; {remedy}") from error

    def send(self, batches: Iterator[pa.RecordBatch], token: sm.EpochToken) -> None:
        for batch in batches:
            rows = batch.to_pylist()
            lines = [line for row in rows for line in (self._action(row), row)]
            body = "".join(json.dumps(line, default=_text) + "\n" for line in lines)
            found = self._ask("POST", "_bulk?filter_path=items.*.status,items.*.error", body)
            for row, item in zip(rows, found["items"], strict=True):
                (answer,) = item.values()
                status = answer["status"]
                if status == 429 or status >= 500:
                    raise ConnectionError(f"{self.index} answers {status}: {answer['error']}")
                # 409: it is there, from an earlier send; or a newer version is.
                if status >= 400 and status != 409:
                    raise sm.SendRefusedError(f"{self.id} {row[self.id]!r}: {answer['error']}")

    def _action(self, row: dict[str, Any]) -> dict[str, Any]:
        if row[self.id] is None:
            raise sm.SendRefusedError(f"{self.id} is null: {row}")
        at = {"_id": str(row[self.id])}
        if self.version is None:
            return {"create": at}
        return {"index": {**at, "version": row[self.version], "version_type": "external_gte"}}

    def _ask(self, method: str, path: str, body: str = "") -> Any:
        request = Request(f"{self.url}/{self.index}/{path}", body.encode() or None, method=method)
        request.add_header("Content-Type", "application/x-ndjson")
        try:
            with urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except HTTPError as error:
            said = f"it answers {error.code}: {error.read(500).decode(errors='replace')}"
            passes = error.code in (408, 429) or error.code >= 500
            raise (ConnectionError if passes else sm.SendRefusedError)(said) from None


def _text(value: Any) -> str:
    """Return dates, times and bytes as OpenSearch reads them; decimals in full."""
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return str(value.isoformat() if hasattr(value, "isoformat") else value)

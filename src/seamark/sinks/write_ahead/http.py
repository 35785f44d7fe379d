"""`WriteAheadSink.http`: POSTs an epoch's rows to an endpoint."""

import base64
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from seamark.api.checks import one_of, whole_number, yes_or_no
from seamark.contracts.dead_letters import dead_letters_as_json
from seamark.contracts.record_batches import PART_BYTES, in_parts
from seamark.contracts.sink import OUTPUT_MODES, WriterContext
from seamark.contracts.write_ahead import EpochToken
from seamark.model.durations import Duration, seconds
from seamark.model.errors import ConfigurationError, PreflightError, SendRefusedError
from seamark.model.findings import Finding, FindingCode
from seamark.model.packages import load_driver
from seamark.model.schema import Schema, quoted
from seamark.sinks.internal.columns import check_columns, to_json
from seamark.sinks.write_ahead.sink import WriteAheadSink, WriteAheadWriter

CONTENT_TYPES = {"json": "application/x-ndjson", "arrow": "application/vnd.apache.arrow.stream"}
PASSING = (408, 425, 429, 500, 502, 503, 504)
"""Statuses that may change on the next try; so may any other 5xx."""
_MULTI_STATUS = 207
"""Each part of the request has a status of its own, in a form of the endpoint's."""
_TRIES = 3
_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_OWN_HEADERS = ("content-length", "content-type", "idempotency-key", "transfer-encoding")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_SHOWN_ANSWER = 300
_FORMAT, _DIVIDED = b"seamark.format", b"seamark.rows_per_request"
"""In the metadata of a spool file: `format` and `rows_per_request` when its rows were written."""
_paused_until: dict[str, float] = {}
"""By URL: no request before, as the endpoint asked for a pause longer than a call."""


@dataclass(frozen=True, repr=False)
class HttpSink(WriteAheadSink):
    """See `WriteAheadSink.http`."""

    url: str
    format: str = "json"
    headers: Mapping[str, str] = field(default_factory=dict)
    idempotent: bool = False
    timeout: Duration = "30s"
    rows_per_request: int = 100_000
    send_timeout: Duration = "10min"

    def __post_init__(self) -> None:
        if not _is_url(self.url):
            raise ConfigurationError(
                "WriteAheadSink.http: url is no 'http://host/path' or 'https://host/path'"
            )
        one_of(self.format, CONTENT_TYPES, f"{self.describe()}: format")
        if not isinstance(self.headers, Mapping) or not all(
            isinstance(text, str) for pair in self.headers.items() for text in pair
        ):
            raise ConfigurationError(
                f"{self.describe()}: headers is a {type(self.headers).__name__}; give a dict of "
                "texts by name"
            )
        seen: set[str] = set()
        for name, text in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(text):
                raise ConfigurationError(
                    f"{self.describe()}: header {name!r} cannot be sent: its name or value has a "
                    "line end, or another character that HTTP does not take (a value that was read "
                    "from a file may end with a line end: strip it)"
                )
            if (folded := name.lower()) in _OWN_HEADERS or folded in seen:
                why = "the sink's own" if folded in _OWN_HEADERS else "there in another case too"
                raise ConfigurationError(
                    f"{self.describe()}: header {name!r} is {why}; leave it out"
                )
            seen.add(folded)
        # A copy: later changes to the caller's dictionary have no effect here.
        object.__setattr__(self, "headers", dict(self.headers))
        yes_or_no(self.idempotent, f"{self.describe()}: idempotent")
        seconds(self.timeout, f"{self.describe()}: timeout", least_s=0.001)
        _ = self.send_timeout_s  # refuses what is no duration
        whole_number(self.rows_per_request, f"{self.describe()}: rows_per_request", least=1)

    def __repr__(self) -> str:
        headers = dict.fromkeys(self.headers, "***")
        return (
            f"WriteAheadSink.http({self._shown!r}, format={self.format!r}, headers={headers!r}, "
            f"idempotent={self.idempotent!r}, timeout={self.timeout!r}, "
            f"rows_per_request={self.rows_per_request!r})"
        )

    output_modes = OUTPUT_MODES  # the endpoint is sent every change

    @property
    def _shown(self) -> str:
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"

    def describe(self) -> str:
        """Return the URL without its possibly secret parts."""
        return f"HTTP POST to {self._shown}"

    def select_expressions(self, schema: Schema) -> Sequence[str]:
        """Return the columns as they are, or one text column of JSON."""
        check_columns(schema, self.describe(), as_json=self.format == "json")
        names = [quoted(column.name) for column in schema]
        return (
            names
            if self.format == "arrow"
            else [to_json(f"struct({', '.join(names)})") + " AS value"]
        )

    def from_dead_letters(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """See `DeadLetterFormat`. Returns the columns of a dead letter, for JSON as one object."""
        if self.format == "arrow":
            return letters
        return pa.record_batch({"value": pa.array(dead_letters_as_json(letters), pa.string())})

    def create_writer(self, context: WriterContext) -> WriteAheadWriter:
        """See `WriteAheadSink`."""
        divided = str(self.rows_per_request).encode()
        return _Writer(context, {_FORMAT: self.format.encode(), _DIVIDED: divided})

    def check_target(self) -> None:
        """Send a HEAD request; any answer will do. Raises PreflightError if none comes."""
        pool, url = self._pool(0)
        try:
            pool.request("HEAD", url, headers=self._headers(), redirect=False, retries=False)
        except _urllib3().exceptions.HTTPError as error:
            found = f"no server answers ({self._said(error)})"
            raise PreflightError(
                Finding(FindingCode.SV001, self.describe(), found, "start it, or change url")
            ) from error

    def send(self, batches: Iterator[pa.RecordBatch], token: EpochToken) -> None:
        """POST the rows, in requests of `rows_per_request` rows or `PART_BYTES`."""
        if (left_s := _paused_until.get(self.url, 0.0) - time.monotonic()) > 0:
            raise ConnectionError(f"it asks for a pause, of which {left_s:.0f} s are left")
        pool, url = self._pool(time.monotonic() + self.send_timeout_s)
        for number, some in enumerate(_requests(batches, self.rows_per_request)):
            # Of the run that wrote the rows: their columns are those of its format.
            written = some[0].schema.metadata or {}
            format_ = written.get(_FORMAT, self.format.encode()).decode()
            body = _arrow(some) if format_ == "arrow" else _lines(some)
            self._post(pool, url, self._key(token, number, written), format_, body)

    def _key(self, token: EpochToken, number: int, written: Mapping[bytes, bytes]) -> str:
        """Return a request's key. The program's last run may have sent the epoch in requests of
        other rows: by their keys the endpoint would drop rows that it has not taken."""
        rows = str(self.rows_per_request)
        if written.get(_DIVIDED, rows.encode()) != rows.encode():
            return f"{token}.{rows}-{number}"
        return f"{token}.{number}" if number else str(token)

    def _post(self, pool: Any, url: str, key: str, format_: str, body: bytes) -> None:
        headers = {
            **self._headers(),
            "Content-Type": CONTENT_TYPES[format_],
            "Idempotency-Key": key,
        }
        try:
            answer = pool.request("POST", url, body=body, headers=headers, redirect=False)
        except _urllib3().exceptions.HTTPError as error:
            # Without the cause: its text has the whole URL.
            raise ConnectionError(f"no answer: {self._said(error)}") from None
        if 200 <= answer.status < 300 and answer.status != _MULTI_STATUS:
            return
        said = f"it answers {answer.status}: {answer.data[:_SHOWN_ANSWER].decode(errors='replace')}"
        if answer.status in self._passing or answer.status >= 500:
            raise ConnectionError(said)
        raise SendRefusedError(said)

    def _pool(self, until: float) -> tuple[Any, str]:
        """Return a pool, and the URL without its login. The pool waits for no ``Retry-After`` that
        ends later than `until`."""
        urllib3, whole = _urllib3(), self.url
        parts = urlsplit(whole)

        class Retry(urllib3.Retry):  # type: ignore[misc,name-defined]
            def increment(self, *given: Any, response: Any = None, **more: Any) -> Any:
                after_s = self.get_retry_after(response) if response else None
                ends = time.monotonic() + (after_s or 0)
                if ends > until:
                    _paused_until[whole] = ends
                    raise urllib3.exceptions.MaxRetryError(None, "")
                return super().increment(*given, response=response, **more)

        retries = Retry(
            total=_TRIES,
            redirect=False,
            allowed_methods=None,
            status_forcelist=self._passing,
            raise_on_status=False,
            backoff_factor=0.2,
        )
        timeout = urllib3.Timeout(seconds(self.timeout, "timeout"))
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        url = parts._replace(netloc=f"{host}:{parts.port}" if parts.port else str(host)).geturl()
        return urllib3.PoolManager(timeout=timeout, retries=retries), url

    def _headers(self) -> dict[str, str]:
        """Return the headers of each request: a pool's own headers would be dropped."""
        parts = urlsplit(self.url)
        if parts.username is None or "authorization" in map(str.lower, self.headers):
            return dict(self.headers)
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        basic = base64.b64encode(login.encode()).decode()
        return {"Authorization": f"Basic {basic}", **self.headers}

    @property
    def _passing(self) -> tuple[int, ...]:
        # An endpoint with keys answers 409 while it still works on the first request with this one.
        return (*PASSING, 409) if self.idempotent else PASSING

    def _said(self, error: Exception) -> str:
        """Return the kind of error, without the URL in urllib3's errors."""
        reason = getattr(error, "reason", None) or error
        return type(reason).__name__


class _Writer(WriteAheadWriter):
    """Notes in the spool file how its rows are to be sent."""

    def __init__(self, context: WriterContext, metadata: Mapping[bytes, bytes]) -> None:
        super().__init__(context)
        self._metadata = metadata

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SpoolWriter`."""
        super().write(batch.replace_schema_metadata(self._metadata))


def _is_url(text: object) -> bool:
    try:
        parts = urlsplit(text) if isinstance(text, str) else None
        _ = parts and parts.port  # raises if it is not a port number
    except ValueError:
        return False
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)


def _requests(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield lists of batches, each with at most `rows` rows, and `PART_BYTES` or one row. The same
    batches give the same lists: those of an epoch are for ever as its spool files have them."""
    part: list[pa.RecordBatch] = []
    room, size = rows, 0
    for batch in chain.from_iterable(map(in_parts, batches)):
        while batch.num_rows:
            taken = batch.slice(0, room)
            if part and (not room or size + taken.nbytes > PART_BYTES):
                yield part
                part, room, size = [], rows, 0
                continue
            part.append(taken)
            room -= taken.num_rows
            size += taken.nbytes
            batch = batch.slice(taken.num_rows)
    if part:
        yield part


def _lines(batches: list[pa.RecordBatch]) -> bytes:
    lines = [line for batch in batches for line in batch.column(0).to_pylist()]
    return "".join(f"{line}\n" for line in lines).encode()


def _arrow(batches: list[pa.RecordBatch]) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema.remove_metadata()) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(out.getvalue())


_urllib3 = partial(load_driver, "urllib3", "WriteAheadSink.http needs urllib3", "http")

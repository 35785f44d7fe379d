"""How: a real endpoint in a process of its own, with answers chosen by a test."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark import EpochToken, SendRefusedError, WriteAheadSink
from seamark.contracts import spool
from seamark.contracts.sink import WriterContext
from seamark.files import open_directory
from seamark.model.errors import ConfigurationError, PreflightError
from seamark.model.guarantee import SinkWay
from seamark.model.schema import Column
from tests.servers.http_endpoint import HttpEndpoint, http_endpoint

TOKEN = EpochToken("c0ffee", "out", 5)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpEndpoint]:
    with http_endpoint(tmp_path_factory.mktemp("endpoint")) as running:
        yield running


def batches(*parts: list[int]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield pa.record_batch({"number": pa.array(part, pa.int64())})


def test_rows_arrive_with_key_and_headers(server: HttpEndpoint) -> None:
    sink = WriteAheadSink.http(
        f"{server.url}/rows", format="arrow", headers={"Authorization": "Bearer x"}
    )
    sink.check_target()
    before = server.rows()
    sink.send(batches([1, 2], [3]), TOKEN)
    assert server.rows()[len(before) :] == [1, 2, 3]
    path, headers = server.ask("/requests")[-1]
    assert path == "/rows"
    assert headers["Idempotency-Key"] == "c0ffee-out-5"
    assert headers["Authorization"] == "Bearer x"
    assert headers["Content-Type"] == "application/vnd.apache.arrow.stream"


def test_who_is_named_in_the_url_logs_in(server: HttpEndpoint) -> None:
    url = server.url.replace("//", "//me:p%40ss@") + "/rows"
    WriteAheadSink.http(url, format="arrow").send(batches([1]), TOKEN)
    _, headers = server.ask("/requests")[-1]
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"me:p@ss"


def test_a_login_in_the_headers_goes_before_that_of_the_url(server: HttpEndpoint) -> None:
    url = server.url.replace("//", "//me:p%40ss@") + "/rows"
    sink = WriteAheadSink.http(url, format="arrow", headers={"authorization": "Bearer x"})
    sink.send(batches([1]), TOKEN)
    _, headers = server.ask("/requests")[-1]
    found = [text for name, text in headers.items() if name.lower() == "authorization"]
    assert found == ["Bearer x"]


def test_a_large_epoch_goes_in_parts_that_are_the_same_each_time(server: HttpEndpoint) -> None:
    sink = WriteAheadSink.http(f"{server.url}/rows?keep", format="arrow", rows_per_request=2)
    token = EpochToken("c0ffee", "parts", 0)
    before, asked = server.rows(), len(server.ask("/requests"))
    sink.send(batches([1, 2, 3], [4, 5]), token)
    sink.send(batches([1], [2, 3, 4, 5]), token)  # the same rows, cut otherwise
    assert server.rows()[len(before) :] == [1, 2, 3, 4, 5]
    keys = [headers["Idempotency-Key"] for _, headers in server.ask("/requests")[asked:]]
    assert keys == [f"{token}", f"{token}.1", f"{token}.2"] * 2


def spooled_by(
    sink: WriteAheadSink, at: WriterContext, rows: Iterator[pa.RecordBatch]
) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Write rows into a spool file, and return how to read them."""
    Path(at.spool_uri).parents[1].mkdir()
    writer = sink.create_writer(at)
    for batch in rows:
        writer.write(batch)
    (file,) = writer.prepare_commit()
    return lambda: spool.read(open_directory(at.spool_uri, at.hadoop), file.handle)


def test_rows_are_sent_in_the_format_in_which_they_were_written(
    server: HttpEndpoint, tmp_path: Path
) -> None:
    """As lines of JSON, rows for Arrow would be their first column alone."""
    at = WriterContext("c0ffee", "turned", 1, 0, 0, 0, -1, spool_uri=f"{tmp_path}/job/wal/out")
    rows = iter([pa.record_batch({"text": ["a"], "number": [7]})])
    spooled = spooled_by(WriteAheadSink.http(f"{server.url}/rows", format="arrow"), at, rows)
    known = server.rows()
    WriteAheadSink.http(f"{server.url}/rows").send(spooled(), EpochToken("c0ffee", "turned", 0))
    assert server.rows()[len(known) :] == [7]


def test_another_size_of_requests_loses_no_row_of_an_epoch_sent_in_part(
    server: HttpEndpoint, tmp_path: Path
) -> None:
    """A larger first request with the key of a smaller one would be dropped whole."""
    at = WriterContext("c0ffee", "resized", 1, 0, 0, 0, -1, spool_uri=f"{tmp_path}/job/wal/out")
    url = f"{server.url}/rows?keep"
    before = WriteAheadSink.http(url, format="arrow", rows_per_request=2, idempotent=True)
    spooled = spooled_by(before, at, batches([1, 2, 3], [4, 5]))
    token, known = EpochToken("c0ffee", "resized", 0), server.rows()
    server.ask("/script", [None, 413])
    with pytest.raises(SendRefusedError, match="413"):
        before.send(spooled(), token)
    after = WriteAheadSink.http(url, format="arrow", rows_per_request=3, idempotent=True)
    for _ in range(2):
        after.send(spooled(), token)
    assert server.rows()[len(known) :] == [1, 2, 1, 2, 3, 4, 5]
    asked = len(server.ask("/requests"))
    before.send(spooled(), token)
    keys = [headers["Idempotency-Key"] for _, headers in server.ask("/requests")[asked:]]
    assert keys == [f"{token}", f"{token}.1", f"{token}.2"]


@pytest.mark.parametrize("format_", ["json", "arrow"])
def test_a_request_is_bounded_in_bytes(server: HttpEndpoint, format_: Any) -> None:
    """Rows of 1 MB, and one of 20 MB: at most 16 MiB go together, or one row."""
    sink = WriteAheadSink.http(f"{server.url}/rows?keep", format=format_)
    token = EpochToken("c0ffee", f"large-{format_}", 0)
    sizes = [*[10**6] * 20, 2 * 10**7, *[10**6] * 2]
    texts = ["x" * size for size in sizes]
    rows = pa.table({"number": range(23), "text": texts})
    if format_ == "json":
        lines = [json.dumps({"number": n, "text": text}) for n, text in enumerate(texts)]
        rows = pa.table({"value": lines})
    before, asked = server.rows(), len(server.ask("/requests"))
    for _ in range(2):  # the second time with the same keys
        sink.send(iter(rows.to_batches(max_chunksize=9)), token)
    assert server.rows()[len(before) :] == list(range(23))
    posts = [headers for _, headers in server.ask("/requests")[asked:]]
    keys = [headers["Idempotency-Key"] for headers in posts]
    assert keys == [str(token), *(f"{token}.{n}" for n in range(1, len(keys) // 2))] * 2
    bodies = sorted(int(headers["Content-Length"]) for headers in posts)
    assert 2e7 < bodies[-1] == bodies[-2] < 2.01e7
    assert 8e6 < bodies[-3] <= 2**24


@pytest.mark.parametrize("step", [503, 500, 408, [429, {"Retry-After": "0"}], "lost"])
def test_what_passes_is_asked_again(server: HttpEndpoint, step: Any) -> None:
    sink = WriteAheadSink.http(f"{server.url}/rows?keep", format="arrow")
    before, asked = server.rows(), len(server.ask("/requests"))
    server.ask("/script", [step])
    sink.send(batches([1]), EpochToken("c0ffee", f"again-{step}", 0))
    assert server.rows()[len(before) :] == [1]
    assert len(server.ask("/requests")) == asked + 2


def test_a_key_that_is_being_worked_on_is_asked_again(server: HttpEndpoint) -> None:
    sink = WriteAheadSink.http(f"{server.url}/rows?keep", format="arrow", idempotent=True)
    before = server.rows()
    server.ask("/script", [409, 409])
    sink.send(batches([1]), EpochToken("c0ffee", "busy", 0))
    assert server.rows()[len(before) :] == [1]


def test_a_server_that_stays_unwilling_is_no_refusal(server: HttpEndpoint) -> None:
    sink = WriteAheadSink.http(f"{server.url}/rows", format="arrow")
    server.ask("/script", [503] * 4)
    with pytest.raises(ConnectionError, match='it answers 503: "as the script says"'):
        sink.send(batches([1]), TOKEN)


@pytest.mark.parametrize("after", ["7200", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_pause_longer_than_the_call_may_take_is_left_to_seamark(
    server: HttpEndpoint, after: str
) -> None:
    """Else the request would go out long after its job has ended. Until the pause is over, no other
    goes out either: each would bring the epoch's first rows again."""
    sink = WriteAheadSink.http(f"{server.url}/rows?pause={len(after)}", format="arrow")
    server.ask("/script", [[429, {"Retry-After": after}]])
    begun = time.monotonic()
    with pytest.raises(ConnectionError, match="it answers 429"):
        sink.send(batches([1]), TOKEN)
    asked = len(server.ask("/requests"))
    with pytest.raises(ConnectionError, match="it asks for a pause"):
        sink.send(batches([1]), TOKEN)
    assert len(server.ask("/requests")) == asked
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 301, 207])
def test_a_refusal_is_one(server: HttpEndpoint, status: int) -> None:
    sink = WriteAheadSink.http(f"{server.url}/rows", format="arrow")
    asked = len(server.ask("/requests"))
    server.ask("/script", [[status, {"Location": "/rows"}]])
    with pytest.raises(SendRefusedError, match=f"it answers {status}"):
        sink.send(batches([1]), TOKEN)
    assert len(server.ask("/requests")) == asked + 1


def test_a_server_that_hangs_or_is_away_is_given_up(
    server: HttpEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = server.url.replace("//", "//me:secret@") + "/rows?key=secret"
    sink = WriteAheadSink.http(secret, format="arrow", timeout="200ms")
    server.ask("/script", ["hang"] * 4)
    with pytest.raises(ConnectionError, match="no answer: ReadTimeoutError"):
        sink.send(batches([1]), TOKEN)
    nobody = WriteAheadSink.http("http://me:secret@127.0.0.1:9/?key=secret", format="arrow")
    with pytest.raises(PreflightError, match=r"POST to http://127\.0\.0\.1:9/: no server"):
        nobody.check_target()
    with pytest.raises(ConnectionError, match="no answer: NewConnectionError") as found:
        nobody.send(batches([1]), TOKEN)
    assert "secret" not in str(found.value)
    assert found.value.__cause__ is None
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("seamark")]
    assert "secret" not in "".join(ours)


def test_nothing_secret_is_shown() -> None:
    sink = WriteAheadSink.http(
        "https://me:secret@host:8443/in?key=secret", headers={"X-Key": "secret"}, idempotent=True
    )
    assert "secret" not in repr(sink) + sink.describe()
    assert sink.describe() == "HTTP POST to https://host:8443/in"
    assert sink.way is SinkWay.WRITE_AHEAD_LOG_WITH_TOKEN
    assert sink.select_expressions((Column("a", "bigint"),))[0].startswith("to_json(struct(`a`)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://host/"}, "url is no 'http://host/path'"),
        ({"url": None}, "url is no 'http://host/path'"),
        ({"url": "http://host:99999/"}, "url is no 'http://host/path'"),
        ({"url": "http://[::1/"}, "url is no 'http://host/path'"),
        ({"format": "csv"}, "format is 'csv'; allowed are 'json', 'arrow'"),
        ({"headers": {"a": 1}}, "headers is a dict; give a dict of texts"),
        ({"headers": {"X-Key": "s3cr3t\n"}}, "header 'X-Key' cannot be sent.*strip it"),
        ({"headers": {"X Key": "a"}}, "header 'X Key' cannot be sent"),
        ({"headers": {"idempotency-key": "a"}}, "header 'idempotency-key' is .*; leave it out"),
        ({"headers": {"CONTENT-TYPE": "a"}}, "header 'CONTENT-TYPE' is .*; leave it out"),
        ({"headers": {"transfer-encoding": "chunked"}}, "header 'transfer-encoding' is"),
        ({"headers": {"X-Key": "a", "x-key": "b"}}, "header 'x-key' is .* another case"),
        ({"idempotent": "no"}, "idempotent"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"rows_per_request": 0}, "rows_per_request is 0; give a whole number of at least 1"),
        ({"rows_per_request": True}, "rows_per_request is True"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as found:
        WriteAheadSink.http(**{"url": "http://host/", **arguments})
    assert "s3cr3t" not in str(found.value)

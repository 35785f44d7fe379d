"""How: an application that fails, behind the guard, served over HTTP as a driver's and asked by a
client; what the log gets meanwhile."""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from fastapi import FastAPI

import seamark as sm
from seamark.jobs.log_redaction import RedactedLog
from seamark.model.redaction import Redactor
from seamark.rest.connections import Connections, guarded_server
from seamark.rest.server import Protection, listen

SECRET, PASSWORD = "s3cr3t-of-the-job", "hunter2-and-more"


@pytest.fixture
def url() -> Iterator[str]:
    app = FastAPI()

    @app.get("/fails")
    def fails() -> None:
        raise RuntimeError(f"no login with {SECRET} at postgresql://me:{PASSWORD}@db/orders")

    @app.get("/whole")
    def whole() -> dict[str, str]:
        return {"it": "answers"}

    config, connections = sm.RestConfig(), Connections(8)
    guarded = Protection(app, config, connections, lambda authorization: False)
    server = guarded_server(guarded, connections, keep_alive_s=5)
    listener = listen(sm.RestConfig(port=0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_an_unexpected_error_is_a_500_and_its_trace_has_no_secret(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with RedactedLog(Redactor([SECRET])), caplog.at_level(logging.DEBUG):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/fails", timeout=30)
        with urllib.request.urlopen(f"{url}/whole", timeout=30) as page:
            assert json.load(page) == {"it": "answers"}
    body = refused.value.read().decode()
    assert (refused.value.code, refused.value.headers["content-type"]) == (500, "application/json")
    (why,) = json.loads(body)["errors"]
    assert "Internal server error (RuntimeError)" in why
    assert "GET /fails failed" in caplog.text
    assert "in fails" in caplog.text and "RuntimeError: no login with ***" in caplog.text
    for secret in (SECRET, PASSWORD):
        assert secret not in body + caplog.text

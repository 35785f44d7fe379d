"""How: at a driver's address, a server gives no driver's answers to every command; each ends with a
paragraph and no traceback."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seamark.cli.main import app
from seamark.dashboard.jobs import Jobs
from seamark.jobs.token import DriverToken
from tests.unit.cli.listener import Listener
from tests.unit.cli.test_signed_records import CHANGES, JID, JOB, STARTED_S, record

RUNNING = {"state": "RUNNING", "start-time": round(STARTED_S * 1000)}
TRIGGER = {"request-id": "0" * 32}
STRANGE = [
    {}, [], None, 7, "RUNNING", {"status": {}}, {"status": "COMPLETED"}, {"request-id": 7},
    {"status": {"id": "COMPLETED"}}, {"status": {"id": "COMPLETED"}, "operation": {}},
    {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": "because"}},
    {"status": {"id": "IN_PROGRESS"}, "progress": {"bytes": "x"}},
    {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": "x", "location": 7}},
]  # fmt: skip
RAW = [b"", b"[" * 100_000, b"\xff\xfe", b'{"id": ' + b"9" * 5000 + b"}"]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    with Listener({f"GET {JOB}": RUNNING}) as listener:
        yield listener


def shown(answer: object) -> str:
    return repr(answer)[:40]


def call(*arguments: str) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 3, 4), result.output
    return result


@pytest.mark.parametrize("answer", [*STRANGE, *RAW], ids=shown)
def test_an_answer_that_no_driver_gives_is_a_paragraph(
    tmp_path: Path, driver: Listener, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seamark.operations.change_job.RECORDED_S", 0.0)
    storage = record(tmp_path, driver.url, DriverToken(JID).sign)
    for begun in (answer, TRIGGER):
        for verb in ("checkpoints", "savepoints", "stop"):
            driver.pages[f"POST {JOB}/{verb}"] = begun
            driver.pages[f"GET {JOB}/{verb}/{'0' * 32}"] = answer
        driver.pages[f"PATCH {JOB}?mode=cancel"] = answer
        for change in CHANGES[:-1]:
            ended = call(*change, "--timeout", "10ms", "--storage", storage)
            assert ended.exit_code in (3, 4), ended.output
            assert ended.stderr.splitlines()[-1].startswith("seamark: ")


@pytest.mark.parametrize("answer", [*STRANGE, *RAW, {"id": 7}, {"parts": 7}], ids=shown)
def test_a_job_whose_pages_no_driver_gives_is_shown_all_the_same(
    tmp_path: Path, driver: Listener, answer: Any
) -> None:
    storage = record(tmp_path, driver.url, DriverToken(JID).sign)
    for page in ("guarantees", "epoch"):
        driver.pages[f"GET {JOB}/{page}"] = answer
    assert "clicks" in call("info", "clicks", "--storage", storage).stdout
    jobs = Jobs(storage)
    pages = [
        jobs.overview("o"), jobs.details(JID),
        jobs.page(JID, "c", lambda job: jobs.checkpoints(job, 10, None, None)),
        jobs.page(JID, "s", jobs.savepoints), jobs.page(JID, "l", jobs.lineage),
    ]  # fmt: skip
    assert [page.status for page in pages] == [200] * 5
    assert json.loads(pages[0].body)["jobs"][0]["name"] == "clicks"
    driver.pages[f"GET {JOB}"] = answer
    assert "UNREACHABLE" in call("list", "--storage", storage).stdout
    assert json.loads(Jobs(storage).overview("o").body)["jobs"][0]["state"] == "UNREACHABLE"


def test_without_new_rows_since_its_restore_a_checkpoint_is_the_restored_one(
    tmp_path: Path, driver: Listener
) -> None:
    storage = record(tmp_path, driver.url, DriverToken(JID).sign)
    driver.pages |= {
        f"POST {JOB}/checkpoints": TRIGGER,
        f"GET {JOB}/checkpoints/{'0' * 32}": {
            "status": {"id": "COMPLETED"}, "operation": {"checkpointId": 7},
        },
        f"GET {JOB}/checkpoints/details/7": HTTPStatus.NOT_FOUND,
        f"GET {JOB}/checkpoints": {
            "latest": {"completed": None, "restored": {"id": 7, "external_path": "file:///s"}},
        },
    }  # fmt: skip
    ended = call(*CHANGES[0], "--storage", storage)
    assert ended.exit_code == 0, ended.output
    said = "No row is new since checkpoint 7, which it began from. Path: file:///s\n"
    assert ended.stdout == said
    driver.pages[f"GET {JOB}/checkpoints"]["latest"]["restored"]["id"] = 6
    with pytest.raises(AssertionError, match="its driver answers 404"):
        call(*CHANGES[0], "--storage", storage)


def test_an_answer_that_comes_by_drops_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the recorded address another program streams, each byte in time and never the last."""
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("seamark.jobs.driver.WHOLE_S", 0.5)
    over = threading.Event()

    class Dropping(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            for _ in range(600):
                if over.wait(0.1):
                    return
                with contextlib.suppress(OSError):
                    self.wfile.write(b" ")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Dropping)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        storage = record(tmp_path, f"http://127.0.0.1:{server.server_port}", DriverToken(JID).sign)
        begun = time.monotonic()
        assert "UNREACHABLE" in call("list", "--storage", storage).output
        assert time.monotonic() - begun < 30
    finally:
        over.set()
        server.shutdown()
        server.server_close()

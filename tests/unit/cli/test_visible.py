"""How: a storage holds names and texts able to move a terminal's cursor, set its title or paste
into it; every command showing them is called, and its output has no such character."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.checkpoint.executions import (
    ExecutionEnd,
    ExecutionFailure,
    ExecutionStart,
    ExecutionStore,
)
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.cli.main import app
from seamark.cli.terminal import say, stdout, suggest
from seamark.cli.visible import VisibleFormatter, visible
from seamark.files.local import LocalDirectory
from seamark.jobs.token import DriverToken
from seamark.model.job_state import JobState
from tests.unit.cli.listener import Listener
from tests.unit.cli.test_signed_records import JID, JOB, STARTED_S

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\x08\u202e[/bold]"
HARMLESS = "Grüße, 東京 → 100 %\n\tnext"


def is_clean(text: str) -> bool:
    return not [c for c in text if c in EVIL[:-7] and not c.isprintable()]


def job(storage: Path, name: str, end: ExecutionEnd | None, url: str = "") -> None:
    files = LocalDirectory(storage / name)
    restored = {"path": f"file:///{EVIL}", "job_id": None, "epoch": 7}
    CheckpointStore(files, files).create_identity(
        JobIdentity(JID, "ee" * 16, name, 0, STARTED_S, restored)
    )
    part = {"uid": EVIL, "kind": EVIL, "description": EVIL, "guarantee": EVIL}
    pages = {"guarantees": {"guarantee": EVIL, "weakest": EVIL, "parts": [part]}}
    executions = ExecutionStore(files)
    host = EVIL if not url else "h"
    start = ExecutionStart(JID, name, host, 1, STARTED_S, url, pages=pages)
    number = executions.begin(start, DriverToken(JID).sign)
    executions.record_failure(number, 0, ExecutionFailure(STARTED_S, 1, EVIL, EVIL, True))
    if end is not None:
        executions.end(number, end)


def shown(*arguments: str) -> str:
    result = CliRunner(env={"FORCE_COLOR": "1", "TERM": "dumb"}).invoke(app, list(arguments))
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result.stdout + result.stderr


def test_no_command_hands_on_what_a_terminal_obeys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    failed = ExecutionEnd(JobState.FAILED, STARTED_S + 1, EVIL)
    job(tmp_path / "1", "a\x1b]0;owned\x07", failed)
    job(tmp_path / "2", "killed", None)
    for storage in ("1", "2"):
        (name,) = (p.name for p in (tmp_path / storage).iterdir())
        for verb in (
            ["list", "-a"], ["info", name], ["info", "nobody"], ["explain", name],
            ["checkpoints", name], ["stop", name], ["checkpoint", JID[:4]],
        ):  # fmt: skip
            found = shown(*verb, "--storage", str(tmp_path / storage))
            assert is_clean(found), (verb, found)
        assert r"\x1b]0;o" in shown("list", "-a", "--storage", str(tmp_path / storage))


def test_what_a_driver_says_is_shown_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    trigger = "0" * 32
    pages = {
        f"GET {JOB}": {"state": "RUNNING", "start-time": round(STARTED_S * 1000)},
        f"POST {JOB}/checkpoints": {"request-id": trigger},
        f"GET {JOB}/checkpoints/{trigger}": {
            "status": {"id": "COMPLETED"},
            "operation": {"failure-cause": {"class": EVIL, "stack-trace": EVIL}},
        },
        f"POST {JOB}/savepoints": {"request-id": trigger},
        f"GET {JOB}/savepoints/{trigger}": {
            "status": {"id": "COMPLETED"}, "operation": {"location": EVIL + "\ud800"},
        },
    }  # fmt: skip
    with Listener(pages) as driver:
        job(tmp_path / "store", "clicks", None, driver.url)
        for verb in (["checkpoint", "clicks"], ["savepoint", "clicks", "/s"]):
            found = shown(*verb, "--storage", str(tmp_path / "store"))
            assert is_clean(found), found
            assert r"\x1b]0;owned" in found


def test_what_is_visible_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert visible(HARMLESS) == HARMLESS
    assert visible("a\x1bb\ud800\u202e") == r"a\x1bb\ud800\u202e"
    say(f"[red]{EVIL}")
    suggest(f"seamark info {EVIL}")
    stdout().print(f"[red]{HARMLESS}")
    said = capsys.readouterr()
    assert is_clean(said.out + said.err)
    assert "[red]Grüße, 東京 → 100 %" in said.out and "[/bold]" in said.err
    record = logging.LogRecord("n", logging.WARNING, "p", 1, "%s", (EVIL,), None)
    assert is_clean(VisibleFormatter().format(record))


def test_json_is_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    job(tmp_path / "store", "killed", None)
    found = shown("list", "--json", "--storage", str(tmp_path / "store"))
    assert found.isascii() and is_clean(found)
    assert json.loads(found)[0]["host"] == EVIL

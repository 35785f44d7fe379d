"""How: a server answers over HTTP, like a driver, at the address of a job's record; the commands
and the dashboard are told to change the job, and the listener tells the headers it got. The record
is forged, or written as a driver writes it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from seamark.checkpoint.executions import ExecutionStart, ExecutionStore, Sign, unsigned
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.cli.main import app
from seamark.dashboard.jobs import Jobs
from seamark.files.local import LocalDirectory
from seamark.jobs.token import DriverToken, sign
from tests.tokens import read_token
from tests.unit.cli.listener import Listener

JID, OTHER = "ab" * 16, "cd" * 16
JOB = f"/jobs/{JID}"
STARTED_S = 1_700_000_000.0


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SEAMARK_TOKEN", raising=False)
    with Listener(
        {f"GET {JOB}": {"state": "RUNNING", "start-time": round(STARTED_S * 1000)}}
    ) as it:
        yield it


def record(tmp_path: Path, url: str, sign: Sign, *, name: str = "clicks", jid: str = JID) -> str:
    """Write the record of a driver at `url`; return the storage."""
    storage = tmp_path / "store"
    files = LocalDirectory(storage / name)
    CheckpointStore(files, files).create_identity(JobIdentity(jid, "ee" * 16, name, 0, STARTED_S))
    start = ExecutionStart(jid, name, socket.gethostname(), 1, STARTED_S, url)
    ExecutionStore(files).begin(start, sign)
    return f"file://{storage}"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


CHANGES = [
    ["checkpoint", "clicks"], ["savepoint", "clicks", "/s"], ["stop", "clicks"],
    ["stop", "clicks", "-p", "/s"], ["cancel", "clicks", "--yes"],
]  # fmt: skip


@pytest.mark.parametrize("verb", CHANGES, ids=" ".join)
@pytest.mark.parametrize("signature", ["none", "of another token", "of another address"])
def test_a_forged_address_gets_no_token(
    tmp_path: Path, driver: Listener, verb: list[str], signature: str
) -> None:
    token = DriverToken(JID)
    signs: dict[str, Sign] = {
        "none": unsigned,
        "of another token": lambda content: sign("a" * 43, content),
        "of another address": lambda content: token.sign(
            content.replace(driver.url.encode(), b"http://127.0.0.1:1")
        ),
    }
    storage = record(tmp_path, driver.url, signs[signature])
    ended = call(*verb, "--storage", storage)
    assert ended.exit_code == 2, ended.output
    assert f"{storage}/clicks/executions/1/started.json" in ended.stderr
    assert "the token was not sent" in ended.stderr
    assert call("list", "--storage", storage).exit_code == 0
    assert call("info", "clicks", "--storage", storage).exit_code == 0
    assert driver.seen and {given for _, _, given in driver.seen} == {None}


def test_a_record_of_another_execution_or_job_gets_no_token(
    tmp_path: Path, driver: Listener
) -> None:
    """A signed record is copied: to a later execution, and to another job's directory."""
    storage = record(tmp_path, driver.url, DriverToken(JID).sign)
    executions = tmp_path / "store/clicks/executions"
    (executions / "2").mkdir()
    signed = (executions / "1/started.json").read_bytes()
    (executions / "2/started.json").write_bytes(signed)
    assert "executions/2/started.json" in call("checkpoint", "clicks", "--storage", storage).stderr
    record(tmp_path, "", unsigned, name="orders", jid=OTHER)
    (tmp_path / "store/orders/executions/1/started.json").write_bytes(signed)
    ended = call("stop", "orders", "--storage", storage)
    assert (ended.exit_code, "orders/executions/1" in ended.stderr) == (2, True)
    assert {given for _, _, given in driver.seen} == {None}


@pytest.mark.parametrize("way", ["file of the driver", "--token-file", "SEAMARK_TOKEN"])
def test_the_driver_that_has_signed_its_record_gets_the_token(
    tmp_path: Path, driver: Listener, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    token = DriverToken(JID)
    storage = record(tmp_path, driver.url, token.sign)
    known = read_token(JID) or ""
    options = ["--storage", storage]
    if way == "--token-file":
        token.path.rename(tmp_path / "copy")
        options += ["--token-file", str(tmp_path / "copy")]
    elif way == "SEAMARK_TOKEN":
        token.delete()
        monkeypatch.setenv("SEAMARK_TOKEN", known)
    trigger = "0" * 32
    driver.pages |= {
        f"POST {JOB}/checkpoints": {"request-id": trigger},
        f"GET {JOB}/checkpoints/{trigger}": {
            "status": {"id": "COMPLETED"}, "operation": {"checkpointId": 7},
        },
        f"GET {JOB}/checkpoints/details/7": {"id": 7, "end_to_end_duration": 5},
    }  # fmt: skip
    done = call("checkpoint", "clicks", *options)
    assert done.exit_code == 0, done.output
    assert "Checkpoint 7 completed" in done.stdout
    assert ("POST", f"{JOB}/checkpoints", f"Bearer {known}") in driver.seen
    # Its polls bring the token too, and are answered before others' requests.
    assert ("GET", f"{JOB}/checkpoints/{trigger}", f"Bearer {known}") in driver.seen


@pytest.mark.parametrize("stale", ["a token file", "the environment"])
def test_a_killed_drivers_token_locks_nobody_out(
    tmp_path: Path, driver: Listener, monkeypatch: pytest.MonkeyPatch, stale: str
) -> None:
    """The next driver got its token from the environment, or the callers' environment has that of
    another one: the one that has signed the record is taken, by the verbs and by the dashboard."""
    own, other = "b" * 43, "a" * 43
    storage = record(tmp_path, driver.url, lambda content: sign(own, content))
    file = DriverToken(JID).path
    file.write_text(other if stale == "a token file" else own)
    monkeypatch.setenv("SEAMARK_TOKEN", own if stale == "a token file" else other)
    call("checkpoint", "clicks", "--storage", storage)
    assert ("POST", f"{JOB}/checkpoints", f"Bearer {own}") in driver.seen
    driver.seen.clear()
    assert Jobs(storage).act(JID, "POST", "/stop", b"").status == 200
    assert call("list", "--storage", storage).exit_code == 0
    assert {given for _, _, given in driver.seen} == {f"Bearer {own}"}


def test_a_token_of_an_earlier_driver_is_refused_with_the_remedy(
    tmp_path: Path, driver: Listener
) -> None:
    storage = record(tmp_path, driver.url, DriverToken(JID).sign)
    (tmp_path / "old").write_text("a" * 43)
    ended = call("cancel", "clicks", "-y", "--storage", storage, "--token-file", f"{tmp_path}/old")
    assert ended.exit_code == 2
    assert "the token is that of another driver. Run this command on" in ended.stderr
    assert f"Bearer {'a' * 43}" not in [given for _, _, given in driver.seen]


def test_the_dashboard_sends_no_token_to_a_forged_address(tmp_path: Path, driver: Listener) -> None:
    token = DriverToken(JID)
    known = read_token(JID) or ""
    jobs = Jobs(record(tmp_path, driver.url, unsigned))
    refused = jobs.act(JID, "POST", "/stop", b"")
    assert refused.status == 409
    assert b"executions/1/started.json" in refused.body
    jobs.details(JID), jobs.from_driver(JID, "epoch"), jobs.overview("o")
    assert driver.seen and {given for _, _, given in driver.seen} == {None}

    driver.seen.clear()
    real = Jobs(record(tmp_path / "real", driver.url, token.sign))
    assert real.act(JID, "POST", "/stop", b"").status == 200
    assert real.details(JID).status == 200
    assert [given for _, _, given in driver.seen] == [f"Bearer {known}"] * 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rest_url", "file:///etc"), ("started_at", "soon"), ("started_at", 1e300), ("name", 7),
        ("pid", "x"), ("graph", [{"id": "x"}]), ("pages", []), ("host", None),
    ],
)  # fmt: skip
def test_a_record_with_values_that_no_driver_writes_is_left_out(
    tmp_path: Path, driver: Listener, field: str, value: Any
) -> None:
    storage = record(tmp_path, driver.url, unsigned)
    start = ExecutionStart(JID, "clicks", "h", 1, STARTED_S, driver.url)
    object.__setattr__(start, field, value)
    ExecutionStore(LocalDirectory(tmp_path / "store/clicks")).begin(start)
    for verb in (["list"], ["info", "clicks"]):
        shown = call(*verb, "--storage", storage)
        assert (shown.exit_code, shown.exception) == (0, None), shown.output
        assert "clicks" in shown.stdout  # by the record before

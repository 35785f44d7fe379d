"""How: an HTTP server answers at the address of a job's record as its driver would; the requests to
it tell how a verb ends the job. On a real driver: tests/spark/operations/test_operators_day.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamark.checkpoint.executions import (
    ExecutionEnd,
    ExecutionStart,
    ExecutionStore,
)
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.cli.main import app
from seamark.files.local import LocalDirectory
from seamark.jobs.token import DriverToken
from seamark.model.job_state import JobState
from tests.unit.cli.listener import Listener

JID, TRIGGER, STARTED_S = "ab" * 16, "0" * 32, 1_700_000_000.0
JOB = f"/jobs/{JID}"


class Job:
    """A job with a driver, whose settings have this savepoint_dir."""

    def __init__(self, storage: Path, driver: Listener, savepoint_dir: str | None) -> None:
        files = LocalDirectory(storage / "clicks")
        CheckpointStore(files, files).create_identity(JobIdentity(JID, "e" * 32, "clicks", 0, 1.0))
        self.executions, self.driver = ExecutionStore(files), driver
        setting = {"checkpoint.savepoint_dir": {"value": str(savepoint_dir), "origin": "program"}}
        config = {"jid": JID, "name": "clicks", "execution-config": {"user-config": setting}}
        start = ExecutionStart(
            JID, "clicks", socket.gethostname(), 1, STARTED_S, driver.url, pages={"config": config}
        )
        self.number = self.executions.begin(start, DriverToken(JID).sign)
        driver.pages[f"GET {JOB}"] = {"state": "RUNNING", "start-time": round(STARTED_S * 1000)}

    def answers(self, verb: str, operation: object, answered_at: str) -> None:
        self.driver.pages[f"POST {JOB}/{verb}"] = {"request-id": TRIGGER}
        done = {"status": {"id": "COMPLETED"}, "operation": operation}
        self.driver.pages[f"GET {JOB}/{answered_at}/{TRIGGER}"] = done

    def ends(self, state: JobState) -> None:
        self.executions.end(self.number, ExecutionEnd(state, STARTED_S + 60))

    def asked(self) -> set[str]:
        return {f"{method} {path}" for method, path, _ in self.driver.seen if path != JOB}


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SEAMARK_STORAGE", str(tmp_path / "store"))
    monkeypatch.setattr("seamark.operations.change_job.RECORDED_S", 0.5)
    with Listener({}) as listener:
        yield listener


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


WHOLE = {"location": "file:///s/savepoint-1"}


@pytest.mark.parametrize(
    ("savepoint_dir", "options", "at"),
    [
        (None, [], "stop"),
        (None, ["-p", "/s"], "savepoints"),
        (None, ["--drain"], "savepoints"),
        ("file:///s", [], "savepoints"),
        ("file:///s", ["--no-savepoint"], "stop"),
    ],
)
def test_a_stop_takes_a_savepoint_if_it_is_told_where_or_the_jobs_settings_are(
    tmp_path: Path, driver: Listener, savepoint_dir: str | None, options: list[str], at: str
) -> None:
    job = Job(tmp_path / "store", driver, savepoint_dir)
    operation = WHOLE if at == "savepoints" else {"state": "FINISHED"}
    job.answers("stop", operation, at)
    ended = call("stop", "clicks", *options)
    assert job.asked() == {f"POST {JOB}/stop", f"GET {JOB}/{at}/{TRIGGER}"}, ended.output
    assert ended.exit_code == 3, "no end is recorded"


@pytest.mark.parametrize(
    "verb", ["savepoint clicks sp", "stop clicks -p sp", "cancel clicks -s sp"]
)
def test_a_savepoints_directory_is_relative_to_where_it_was_typed(
    tmp_path: Path, driver: Listener, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """The driver has a working directory of its own."""
    monkeypatch.chdir(tmp_path)
    Job(tmp_path / "store", driver, None)
    call(*verb.split())
    assert f'"{tmp_path.as_uri()}/sp"'.encode() in b"".join(driver.bodies)


@pytest.mark.parametrize("drain", [(), ("--drain",)])
def test_a_savepoint_that_nobody_asked_for_does_not_hold_up_a_stop_unseen(
    tmp_path: Path, driver: Listener, drain: tuple[str, ...]
) -> None:
    job = Job(tmp_path / "store", driver, "file:///s")
    cause = {"failure-cause": {"class": "OSError", "stack-trace": "OSError: disk full"}}
    job.answers("stop", cause, "savepoints")
    ended = call("stop", "clicks", *drain)
    assert ended.exit_code == 4
    assert "disk full; to end it without a savepoint: seamark stop --no-savepoint clicks" in (
        ended.stderr
    )
    assert "--no-savepoint" not in call("stop", "clicks", "-p", "/s").stderr


@pytest.mark.parametrize("given", [["-s", "/s", "clicks"], ["-s", "clicks"], ["clicks", "-s"]])
def test_cancel_with_a_savepoint_as_flink_reads_it(
    tmp_path: Path, driver: Listener, given: list[str]
) -> None:
    job = Job(tmp_path / "store", driver, None)
    job.answers("savepoints", WHOLE, "savepoints")
    ended = call("cancel", *given, "-y")
    assert job.asked() == {f"POST {JOB}/savepoints", f"GET {JOB}/savepoints/{TRIGGER}"}
    assert "the savepoint is whole (file:///s/savepoint-1), but job 'clicks'" in ended.stderr
    job.ends(JobState.CANCELED)
    assert "it is CANCELED" in call("cancel", *given, "-y").stderr

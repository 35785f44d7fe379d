"""How: `seamark logs` and `list --watch` as processes of their own, beside records and logs written
as a driver of `seamark run -d` leaves them. A real job's: tests/spark/operations/."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seamark.checkpoint.executions import ExecutionEnd, ExecutionStart, ExecutionStore
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.cli.main import app
from seamark.files.local import LocalDirectory
from seamark.model.job_state import JobState
from tests.chaos.driver import wait_until

JID = "ab" * 16


def begin(
    storage: Path, log: str, *, name: str = "clicks", jid: str = JID, host: str = "", pid: int = 0
) -> tuple[ExecutionStore, int]:
    files = LocalDirectory(storage / name)
    CheckpointStore(files, files).create_identity(JobIdentity(jid, "e" * 32, name, 8, 1.0))
    executions = ExecutionStore(files)
    start = ExecutionStart(
        jid, name, host or socket.gethostname(), pid or os.getpid(), 1000.0, "", log=log
    )
    return executions, executions.begin(start)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEAMARK_STORAGE", str(tmp_path / "store"))
    return tmp_path / "store"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@contextmanager
def watched(out: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    with out.open("w") as file, subprocess.Popen(
        [sys.executable, "-m", "seamark", *arguments], stdout=file, stderr=file, text=True,
        env={**os.environ, **variables},
    ) as command:  # fmt: skip
        try:
            yield command
        finally:
            command.kill()


def test_the_output_so_far_is_printed_without_what_a_terminal_would_obey(storage: Path) -> None:
    log = storage.parent / "app.log"
    begin(storage, str(log))
    log.write_bytes(b"began\n\x1b[2Jcleared \xff\nno newline")
    ended = call("logs", "clicks")
    assert (ended.exit_code, ended.stdout) == (0, "began\n\\x1b[2Jcleared \\xff\nno newline")
    assert f"log             {log}\n" in call("info", "clicks").stdout


@pytest.mark.parametrize(
    ("log", "host", "says"),
    [
        ("", "", f"its output is where its driver (pid {os.getpid()} on {socket.gethostname()})"),
        ("/there/app.log", "far.example", "its log is /there/app.log on far.example"),
        ("/nowhere/app.log", "", "its log /nowhere/app.log is not there any more"),
    ],
    ids=["no-log", "elsewhere", "gone"],
)
def test_a_job_without_a_log_here_says_so_in_a_line(
    storage: Path, log: str, host: str, says: str
) -> None:
    begin(storage, log, host=host)
    for options in ([], ["-f"]):
        ended = call("logs", *options, "clicks")
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert ended.stderr.startswith("seamark: job 'clicks'") and says in ended.stderr
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("end", ["recorded", "killed"])
def test_following_ends_with_the_job_and_misses_nothing(storage: Path, end: str) -> None:
    log, out = storage.parent / "app.log", storage.parent / "out"
    log.write_text("one\n")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        executions, number = begin(storage, str(log), pid=program.pid)
        with watched(out, "logs", "--follow", "clicks") as command:
            wait_until("the first line", lambda: out.read_text() == "one\n", 60)
            with log.open("a") as file:
                file.write("two\n")
            wait_until("the second line", lambda: out.read_text() == "one\ntwo\n", 60)
            assert command.poll() is None
            with log.open("a") as file:
                file.write("last words")
            if end == "recorded":
                executions.end(number, ExecutionEnd(JobState.FINISHED, 1060.0))
            else:
                program.kill()
                program.wait(60)
            assert command.wait(60) == 0
            assert out.read_text() == "one\ntwo\nlast words"
        program.kill()


def test_a_watched_list_is_drawn_again_after_each_change_until_ctrl_c(storage: Path) -> None:
    out = storage.parent / "out"
    executions, number = begin(storage, "")
    with watched(out, "list", "-a", "--watch") as command:
        wait_until("the first table", lambda: "clicks  UNREACHABLE" in out.read_text(), 60)
        begin(storage, "", name="orders", jid="cd" * 16)
        wait_until("the second job", lambda: "orders  UNREACHABLE" in out.read_text(), 60)
        executions.end(number, ExecutionEnd(JobState.FINISHED, 1060.0))
        wait_until("its end", lambda: "clicks  FINISHED" in out.read_text(), 60)
        assert out.read_text().count("started") == 3, "one table a change"
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0


def test_a_terminal_is_cleared_for_a_watched_list_alone(storage: Path) -> None:
    begin(storage, "")
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm"}
    shown = CliRunner(env=terminal).invoke(app, ["list"])
    assert "clicks" in shown.stdout and "\x1b[2J" not in shown.stdout
    out = storage.parent / "out"
    with watched(out, "list", "--watch", **terminal) as command:
        wait_until("the table", lambda: "clicks" in out.read_text(), 60)
        assert "\x1b[2J" in out.read_text()
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 0

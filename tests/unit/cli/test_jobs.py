"""How: records of jobs are written as their drivers would have left them, and each verb is called
on them: on ended jobs, killed jobs, jobs elsewhere, and on mistakes. Verbs on a living driver:
tests/spark/operations/test_operators_day.py."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from seamark.checkpoint.executions import (
    ExecutionEnd,
    ExecutionFailure,
    ExecutionStart,
    ExecutionStore,
)
from seamark.checkpoint.store import CheckpointStore, JobIdentity
from seamark.cli.main import app
from seamark.files.local import LocalDirectory
from seamark.model.errors import OperationFailedError
from seamark.model.job_state import JobState
from seamark.operations.storage import readable

CLICKS, ORDERS, BILLS = "abcd1" + "0" * 27, "abcd2" + "0" * 27, "f" * 32


PAGES = {
    "guarantees": {
        "guarantee": "at-least-once", "weakest": "out", "remedy": "take a FileSink",
        "parts": [
            {"uid": uid, "kind": kind, "description": "d", "guarantee": level, "why": "w"}
            for uid, kind, level in (
                ("in", "source", "exactly-once"), ("out", "sink", "at-least-once"),
            )
        ],
        "sinks": [
            {"uid": "out", "guarantee": "at-least-once", "note": "", "weakest": "out", "remedy": ""}
        ],
    },
    "checkpoints/config": {"mode": "exactly_once"},
}  # fmt: skip


def job(
    storage: Path, name: str, job_id: str, *, run: bool = True, host: str = "", pid: int = 0,
    rest_url: str = "", end: ExecutionEnd | None = None, pages: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    files = LocalDirectory(storage / name)
    restored = {"path": "file:///old/clicks", "job_id": None, "epoch": 7}
    CheckpointStore(files, LocalDirectory(storage / name / "spark")).create_identity(
        JobIdentity(job_id, "e" * 32, name, 8, 1000.0, restored)
    )
    if run:
        executions = ExecutionStore(files)
        host = host or socket.gethostname()
        start = ExecutionStart(job_id, name, host, pid, 1000.0, rest_url, pages=pages or {})
        number = executions.begin(start)
        failure = ExecutionFailure(1001.0, 9, "OSError", "disk full", restarted=True)
        executions.record_failure(number, 0, failure)
        if end is not None:
            executions.end(number, end)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four jobs: finished, failed, killed on this machine, and silent on another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    (tmp_path / "seamark.toml").write_text('[checkpoint]\nstorage = "store"\n')
    store = tmp_path / "store"
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        silent = f"http://127.0.0.1:{closed.getsockname()[1]}"
    job(store, "clicks", CLICKS, end=ExecutionEnd(JobState.FINISHED, 1060.0))
    failed = ExecutionEnd(JobState.FAILED, 1060.0, "no space left")
    job(store, "orders", ORDERS, end=failed, pages=PAGES)
    job(store, "bills", BILLS, pid=process.pid, rest_url=silent)
    job(store, "moved", "c" * 32, host="far.example", pid=1, rest_url=silent)
    job(store, "stream", "d" * 32, run=False)
    return store


def call(*arguments: object, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, [*map(str, arguments)])


def paragraph(result: Result) -> str:
    assert "Traceback" not in result.output
    line = result.stderr.splitlines()[-1]
    assert line.startswith("seamark: ")
    return line


def test_the_list_shows_silent_jobs_and_on_wish_those_that_have_ended(storage: Path) -> None:
    shown = call("list")
    assert shown.exit_code == 0
    assert [line.split()[3:] for line in shown.stdout.splitlines()[1:]] == [
        ["bills", "UNREACHABLE"], ["moved", "UNREACHABLE"],
    ]  # fmt: skip
    assert "bills: its driver (pid" in shown.stderr and "was killed" in shown.stderr
    assert "of that machine alone. Run this command on far.example" in shown.stderr
    assert "seamark info bills" in shown.stderr
    everything = json.loads(call("list", "--all", "--json").stdout)
    assert {one["name"]: one["state"] for one in everything} == {
        "clicks": "FINISHED", "orders": "FAILED", "bills": "UNREACHABLE", "moved": "UNREACHABLE",
    }  # fmt: skip
    assert "orders failed: no space left" in call("list", "-a").stderr
    nothing = call("list", "--running")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "No job runs in file://" in nothing.stderr


def test_info_of_an_ended_job_comes_from_its_storage(storage: Path) -> None:
    shown = call("info", "orders")
    assert shown.exit_code == 0
    lines = {line[:16].strip(): line[16:] for line in shown.stdout.splitlines()}
    assert shown.stdout.startswith("orders  FAILED\n")
    assert lines["job id"] == ORDERS
    assert lines["reason"] == "no space left"
    assert lines["ended"].endswith(", after 1 min 0 s")
    # Stored by its driver when it began.
    assert lines["guarantee"].startswith("at-least-once, because of out")
    assert [line.split() for line in shown.stdout.splitlines()[-2:]] == [
        ["in", "source", "exactly-once", "d"],
        ["out", "sink", "at-least-once", "d"],
    ]
    report = json.loads(call("explain", "orders", "--json").stdout)["orders"]
    assert (report["mode"], report["guarantee"]) == ("exactly-once", "at-least-once")
    assert [part["uid"] for part in report["parts"]] == ["in", "out"]
    assert "seamark explain APP.PY" in paragraph(call("explain", "clicks"))
    assert lines["restarts"].startswith("1 ")
    assert lines["restored from"] == "epoch 7 of file:///old/clicks"
    assert lines["last checkpoint"] == "none is completed"
    assert "seamark run APP.PY" in shown.stderr
    page = json.loads(call("info", "orders", "--json").stdout)
    assert (page["jid"], page["state"], page["duration"]) == (ORDERS, "FAILED", 60_000)
    assert (page["restarts"], page["lineage-id"], page["epoch"]) == (1, "e" * 32, None)
    assert "was killed" in call("info", "bills").stdout


@pytest.mark.parametrize("name", ["orders", ORDERS, "abcd2"])
def test_a_job_is_found_by_name_id_and_first_digits(storage: Path, name: str) -> None:
    assert json.loads(call("info", name, "--json").stdout)["name"] == "orders"


@pytest.mark.parametrize("verb", ["info", "checkpoint", "checkpoints", "stop", "cancel", "explain"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["abcd"], f"begins the ids of 2 jobs: {CLICKS} (clicks), {ORDERS} (orders)"),
        (["nobody"], "holds no job 'nobody' (a name, an id, or its first digits); there are bills"),
        (["abc"], "holds no job 'abc'"),  # three digits are too few
        (["clicks", "--storage", "nowhere"], "there is none at all"),
    ],
)
def test_a_job_that_is_not_there_is_a_mistake(
    storage: Path, verb: str, arguments: list[str], says: str
) -> None:
    ended = call(verb, *arguments)
    assert ended.exit_code == 2
    assert says in paragraph(ended)
    assert not (storage.parent / "nowhere").exists()


@pytest.mark.parametrize(
    ("storage_given", "says"),
    [
        ("nowhere", "is not there, or is no directory, so no job has run with it"),
        ("http://host/x", "--storage has the scheme 'http', where no checkpoint can be kept"),
        ("jdbc:postgresql://host/x?password=s3cr3t", "'jdbc' and no path from the top"),
        ("file://store", "write 'file:///store'"),
    ],
)
@pytest.mark.parametrize("verb", ["list", "info"])
def test_a_storage_that_cannot_be_is_a_mistake(
    storage: Path, verb: str, storage_given: str, says: str
) -> None:
    ended = call(verb, *(["clicks"] if verb == "info" else []), "--storage", storage_given)
    assert ended.exit_code == 2
    told = paragraph(ended)
    assert says in told or (verb == "info" and "there is none at all" in told)
    assert "s3cr3t" not in ended.output


def test_a_storage_in_the_settings_that_cannot_be_is_a_mistake(storage: Path) -> None:
    (storage.parent / "seamark.toml").write_text('[checkpoint]\nstorage = "sto\\u0000re"\n')
    ended = call("list")
    assert (ended.exit_code, "control character" in paragraph(ended)) == (2, True)


@pytest.mark.parametrize("verb", ["checkpoint", "stop", "cancel"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("clicks", "job 'clicks' does not run: it is FINISHED; start its program again"),
        ("orders", "it is FAILED (no space left)"),
        ("bills", "is gone without a word: it was killed; start its program again"),
        ("moved", "Run this command on far.example"),
    ],
)
def test_a_job_without_a_driver_that_answers(
    storage: Path, verb: str, name: str, says: str
) -> None:
    ended = call(verb, name)
    assert ended.exit_code == 3
    assert says in paragraph(ended)


def test_a_job_that_was_never_run_by_job_run(storage: Path) -> None:
    ended = call("stop", "stream")
    assert ended.exit_code == 2
    assert "was never run by Job.run" in paragraph(ended)
    assert call("checkpoints", "stream").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["info"], "Missing argument 'JOB'"),
        (["infos", "clicks"], "No such command 'infos'"),
        (["stop", "clicks", "--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["list", "--port", "1"], "No such option"),
    ],
)
def test_wrong_arguments(storage: Path, arguments: list[str], says: str) -> None:
    ended = call(*arguments)
    assert ended.exit_code == 2
    assert says in " ".join(ended.stderr.replace("│", " ").split())


def test_without_a_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every verb looks into the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    for verb in ("list", "info", "checkpoints", "checkpoint", "stop", "cancel"):
        ended = call(verb, *([] if verb == "list" else ["clicks"]))
        assert ended.exit_code == 2
        assert f"{tmp_path}/home/checkpoints" in paragraph(ended)


def test_a_storage_that_cannot_be_read() -> None:
    says = "the storage hdfs://h/x cannot be read: connection refused"
    with pytest.raises(OperationFailedError, match=says), readable("hdfs://h/x"):
        raise ConnectionError("connection refused")


def test_a_narrow_terminal_gets_short_ids_and_a_pipe_whole_ones(storage: Path) -> None:
    assert ORDERS in call("list", "-a").stdout  # the runner is no terminal
    shown = CliRunner(env={"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "dumb"}).invoke(
        app, ["list", "-a"]
    )
    assert ORDERS not in shown.stdout and "abcd2000" in shown.stdout


def test_verbose_tells_on_stderr_which_driver_was_asked(storage: Path) -> None:
    said = seamark("list", "-v", cwd=storage.parent)
    assert "INFO seamark.jobs.driver: job bills at http://127.0.0.1:" in said.stderr
    assert "INFO" not in seamark("list", cwd=storage.parent).stderr


def seamark(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seamark", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=300, env={**os.environ, **variables},
    )  # fmt: skip


def test_a_shell_completes_verbs_and_job_names(storage: Path) -> None:
    def completed(line: str) -> set[str]:
        words = line.split(" ")
        said = seamark(
            cwd=storage.parent, _SEAMARK_COMPLETE="complete_bash", COMP_WORDS=line,
            COMP_CWORD=str(len(words) - 1),
        )  # fmt: skip
        return set(said.stdout.split())

    assert completed("seamark ca") == {"cancel"}
    assert completed("seamark info ") == {"bills", "clicks", "moved", "orders", "stream"}
    (storage / "c\x1b[2J").mkdir()
    (storage / "c\x1b[2J/job.json").touch()
    assert completed("seamark stop c") == {"clicks"}
    assert completed("seamark stop --storage nowhere ") == set()


def test_the_exit_codes_are_in_the_help_and_the_version_is_told(tmp_path: Path) -> None:
    shown = " ".join(seamark("--help", cwd=tmp_path, COLUMNS="80").stdout.split())
    assert "Exit codes: 0 done; 1 an error of Seamark's own" in shown
    assert seamark("--version", cwd=tmp_path).stdout.startswith("seamark 0.")


@pytest.mark.parametrize(
    "program",
    [
        "def halve():\n    1 / 0\n\n\nhalve()\n",
        "try:\n    1 / 0\nexcept ArithmeticError as error:\n    raise OSError from error\n",
        "job = (\n",
    ],
)
def test_an_error_of_the_program_is_shown_as_by_python(tmp_path: Path, program: str) -> None:
    (tmp_path / "app.py").write_text(program)
    ended = seamark("explain", "app.py", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    command = [sys.executable, "app.py"]
    plain = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.stderr.replace(f"{tmp_path}/", "") == plain.stderr.replace(f"{tmp_path}/", "")


def test_explain_keeps_its_own_arguments_from_the_program(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import sys\nprint(sys.argv)\n")
    ended = seamark("explain", "--json", "app.py", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "['app.py']\n")
    assert "no job found" in ended.stderr

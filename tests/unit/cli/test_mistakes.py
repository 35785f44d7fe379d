"""What is mistyped at the command line or in the environment: one paragraph that names the value
and the remedy. How: the command itself, in an empty directory, with programs without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seamark.operations.new_project import new_project

PROGRAMS = {
    "broken.py": "x = (\n",
    "jobless.py": "import seamark\n",
    "binary.py": "import seamark\n\0",
    "latin.py": "name = 'caf\xe9'\n",
    "file": "",
    "empty.toml": '[checkpoint]\nstorage = ""\n',
    "number.toml": "[checkpoint]\nstorage = 3\n",
    "odd/savepoint.json/file": "",
}
TYPED = [
    ("list --storage file", {}, "file is not there, or is no directory", "SEAMARK_STORAGE"),
    ("list", {"SEAMARK_CONFIG": "empty.toml"}, "storage is '';", "empty.toml)"),
    ("list", {"SEAMARK_CONFIG": "number.toml"}, "seamark: CheckpointConfig: storage is 3;", ""),
    ("run -d jobless.py", {"SEAMARK_HOME": "file"}, "file/logs", "another SEAMARK_HOME"),
    ("run -d --log none/log jobless.py", {}, "none/log", "another --log"),
    ("run jobless.py", {"SEAMARK_LOG_LEVEL": "loud"}, "SEAMARK_LOG_LEVEL is 'loud'", "INFO"),
    ("run binary.py", {}, "binary.py: it is no text;", "give the path of a Python program"),
    ("explain latin.py", {}, "latin.py: it is no text (", "give the path of a Python program"),
    ("run -d latin.py", {}, "latin.py: it is no text (", "give the path of a Python program"),
    ("txn list latin.py", {}, "latin.py: it is no text (", "give the path of a Python program"),
    ("dashboard --allow-run binary.py", {}, "--allow-run binary.py: it is no text;", "give"),
    ("dashboard --address no.invalid", {}, "no.invalid", "give another --address, or another"),
    ("txn list broken.py", {}, "has ended (exit code 1) before", "see its own words above"),
    ("audit broken.py", {}, "has ended (exit code 1) before", "see its own words above"),
    ("run --plan broken.py", {}, "has ended (exit code 1) before", "see its own words above"),
    ("txn list jobless.py", {}, "has ended (exit code 0)", "it must call job.run()"),
    ("txn list --job b jobless.py", {}, "a job named 'b'", "correct --job"),
    ("txn list jobless.py --job b", {}, "--job stands after the program", "and seamark does not"),
    ("audit jobless.py --sink=a", {}, "--sink=a stands after the program", "must call job.run()"),
    ("run --plan jobless.py -s here", {}, "-s stands after the program", "must call job.run()"),
    ("run --job b jobless.py", {}, "--job had no effect", "call job.run()"),
    ("savepoint inspect none", {}, "none: there is no savepoint here", "check the path"),
    ("topic create a --bootstrap-servers=", {}, "--bootstrap-servers is ''", "HOST:PORT"),
    ("run --from-savepoint= jobless.py", {}, "-s is ''", "give the path of a savepoint"),
    ("run --plan --from-savepoint= jobless.py", {}, "-s is ''", "give the path of a savepoint"),
    ("run --job= jobless.py", {}, "--job is ''", "give the name of a job"),
    ("run -p 4294967296 jobless.py", {}, "'-p'", "2147483647"),
    ("savepoint inspect odd", {}, "seamark: [Errno 21] Is a directory: '", "savepoint.json'"),
    ("savepoint dispose odd", {}, "seamark: [Errno 21] Is a directory: '", "savepoint.json'"),
    ("offsets show ./odd", {}, "seamark: [Errno 21] Is a directory: '", "savepoint.json'"),
    ("verify --minutes 0 --report no/x.html", {}, "--report no/x.html", "that you may write into"),
    ("verify --minutes 0 --report odd", {}, "'--report'", "is a directory"),
    ("audit --location odd --sink a", {}, "--sink", "go with APP.PY"),
    ("audit --location odd -D checkpoint.interval=1s", {}, "-D", "go with APP.PY"),
    ("audit --options file jobless.py", {}, "--options goes with --location", ""),
    ("txn list --options file jobless.py", {}, "--options goes with --location", ""),
    ("txn list --location odd --job a", {}, "--job", "go with APP.PY"),
    ("stop none --timeout often", {}, "'often' is not a duration", ""),
]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="latin-1")
    return tmp_path


def seamark(home: Path, typed: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SEAMARK_")}
    return subprocess.run(
        [sys.executable, "-m", "seamark", *typed.split()],
        cwd=home, capture_output=True, text=True, timeout=300,
        env={**clean, "SEAMARK_HOME": str(home / "home"), "COLUMNS": "300", **variables},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "variables", "found", "remedy"), TYPED, ids=[each[0] for each in TYPED]
)
def test_a_mistake_names_the_value_and_the_remedy(
    home: Path, typed: str, variables: dict[str, str], found: str, remedy: str
) -> None:
    ended = seamark(home, typed, variables)
    assert ended.returncode in (2, 4), ended
    assert found in ended.stderr, ended.stderr
    assert remedy in ended.stderr[ended.stderr.index(found) :], ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_new_projects_makefile_bears_a_python_in_a_directory_with_a_space(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = home / "my venv" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    new_project(home / "shop")
    done = subprocess.run(
        ["make", "-C", home / "shop", "list"], check=False, capture_output=True, text=True
    )
    assert "checkpoints is not there" in done.stderr, done


def test_a_timeout_may_be_a_number_of_seconds(home: Path) -> None:
    ended = seamark(home, "stop none --timeout 30", {})
    assert "holds no job 'none'" in ended.stderr


def test_a_port_that_postgresql_may_not_listen_on(home: Path) -> None:
    """As root the check of the port passes, and the server runs as nobody."""
    first = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if not first.exists() or int(first.read_text()) < 2:
        pytest.skip("everybody may listen on port 1 here")
    ended = seamark(home, "dev postgres --port 1", {})
    assert ended.returncode == 2, ended
    assert "port 1; give one from 1024 on" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1

"""`seamark run -d` and through spark-submit, with programs without Spark: real processes, and the
final command. A running job: tests/spark/operations/test_operators_day.py."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seamark.api.settings import _from_command_line
from seamark.cli.main import app
from seamark.model.errors import UserError
from seamark.operations.run import Program
from tests.chaos.driver import wait_until


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "DEPLOY_MODE", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SEAMARK_HOME", str(tmp_path / "home"))
    return tmp_path


def detached(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    Path("app.py").write_text(program)
    command = [sys.executable, "-m", "seamark", "run", "-d", *options, "app.py"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("program", "code", "last"),
    [
        ("import seamark as sm\nsm.CheckpointConfig(storage='/s', interval='often')", 2,
         "'often' is not a duration"),
        ("1 / 0", 4, "ZeroDivisionError: division by zero"),
        ("print('no job')", 4, "no job"),
        ("import os, signal\nprint('dies', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)", 4,
         "dies"),
    ],
)  # fmt: skip
def test_a_program_that_ends_first_is_shown(home: Path, program: str, code: int, last: str) -> None:
    ended = detached(program)
    assert (ended.returncode, ended.stdout) == (code, "")
    *tail, paragraph = ended.stderr.splitlines()
    assert last in tail[-1]
    assert paragraph.startswith("seamark: app.py has ended (")
    log = Path(paragraph.rpartition(" is in ")[2])
    assert log.parent == home / "home/logs"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert last in log.read_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-D", "checkpoint.intervall=1"], "did you mean 'checkpoint.interval'?"),
        (["--log", "no/where"], "the log no/where cannot be written: No such file or directory"),
        (["--master", "yarn", "--deploy-mode", "cluster"], "-d waits for a driver on this machine"),
    ],
)
def test_mistakes_start_nothing(home: Path, options: list[str], says: str) -> None:
    ended = detached("open('started', 'w')", *options)
    assert ended.returncode == 2
    assert says in ended.stderr and ended.stderr.count("\n") == 1
    assert not Path("started").exists()


def test_options_of_a_detached_run_alone(home: Path) -> None:
    for option in (["--log", "x"], ["--json"]):
        ended = subprocess.run(
            [sys.executable, "-m", "seamark", "run", *option, "app.py"],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert ended.returncode == 2
        assert f"{option[0]} goes with -d" in ended.stderr


def test_ctrl_c_leaves_the_program_running_and_says_so(home: Path) -> None:
    Path("app.py").write_text(
        "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(100)\n"
    )
    command = [sys.executable, "-m", "seamark", "run", "-d", "--log", "said.log", "app.py"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until("the program", lambda: Path("pid").exists() and Path("pid").read_text(), 60)
        time.sleep(0.3)
        pid = int(Path("pid").read_text())
        try:
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert "app.py goes on in the background; what it says is in said.log" in (
                process.stderr.read()
            )
            assert process.wait(60) == 130
            os.kill(pid, 0)
            assert os.getsid(pid) == pid  # the closing of a terminal does not reach it
        finally:
            os.kill(pid, signal.SIGKILL)


# --- spark-submit


def test_spark_submits_options_go_to_spark_submit_in_front_of_the_program(home: Path) -> None:
    Path("app.py").touch()
    spark = {"--master": "local[2]", "--conf": ["a=1", "b=2"], "--name": "n", "--jars": None}
    program = Program("app.py", ["-x"], ["checkpoint.interval=5s"], "/s/a", spark)
    command, environment = program.command()
    assert Path(command[0]).parts[-2:] == ("bin", "spark-submit") and Path(command[0]).exists()
    assert command[1:] == [
        "--master", "local[2]", "--conf", "a=1", "--conf", "b=2", "--name", "n", "app.py", "-x",
    ]  # fmt: skip
    assert environment["SEAMARK_SETTINGS"] == '["checkpoint.interval=5s"]'
    assert environment["SEAMARK_RESTORE"] == "/s/a"
    assert environment["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("master", "prefix"),
    [("yarn", "spark.yarn.appMasterEnv."), ("k8s://https://h:1", "spark.kubernetes.driverEnv.")],
)
def test_in_cluster_mode_settings_travel_to_the_driver(
    home: Path, monkeypatch: pytest.MonkeyPatch, master: str, prefix: str
) -> None:
    Path("spark.conf").write_text("spark.submit.deployMode=cluster\n")
    texts = ['checkpoint.storage=s3a://b/it\'s "here"', "checkpoint.interval=5s"]
    for mode in (
        {"--deploy-mode": "cluster"},
        {"--conf": ["spark.submit.deployMode=cluster"]},
        {"--properties-file": "spark.conf"},
    ):
        monkeypatch.delenv("SEAMARK_SETTINGS", raising=False)
        program = Program("s3a://b/app.py", [], texts, "s3a://b/j", {"--master": master, **mode})
        command, environment = program.command()
        assert "SEAMARK_SETTINGS" not in environment
        travels = dict(
            text.removeprefix(prefix).split("=", 1) for text in command if text.startswith(prefix)
        )
        assert travels["SEAMARK_RESTORE"] == "s3a://b/j"
        assert travels["SEAMARK_RUN"] == "1"
        assert not set("\"'$ ") & set(travels["SEAMARK_SETTINGS"])
        monkeypatch.setenv("SEAMARK_SETTINGS", travels["SEAMARK_SETTINGS"])
        assert _from_command_line()["storage"].value == 's3a://b/it\'s "here"'


def test_what_cannot_reach_a_driver_is_refused(home: Path) -> None:
    Path("app.py").touch()
    spark = {"--master": "spark://h:7077", "--deploy-mode": "cluster"}
    with pytest.raises(UserError, match="driver on YARN and Kubernetes alone"):
        Program("app.py", spark=spark).command()


ANNOUNCED = """
import os, time
from seamark.checkpoint.executions import ExecutionStart, announce
start = ExecutionStart('a' * 32, 'j', 'h', os.getpid(), 1.0, {url!r})
announce(start, 'file:///s/j')
open('pid', 'w').write(str(os.getpid()))
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("", 0, "has been started with JobID " + "a" * 32 + ": UNREACHABLE"),
        ("http://127.0.0.1:9", 3, "nothing answers at http://127.0.0.1:9"),
    ],
    ids=["rest.enabled=false", "a wrong rest.advertised_address"],
)
def test_a_driver_that_cannot_be_asked_is_not_waited_for_without_an_end(
    home: Path, monkeypatch: pytest.MonkeyPatch, url: str, code: int, says: str
) -> None:
    monkeypatch.setattr("seamark.operations.run_detached.SILENT_S", 0.5)
    Path("app.py").write_text(ANNOUNCED.format(url=url))
    try:
        ended = CliRunner().invoke(app, ["run", "-d", "app.py"])
        assert ended.exit_code == code, ended.output
        assert says in ended.output
    finally:
        os.kill(int(Path("pid").read_text()), signal.SIGKILL)


def test_the_started_job_is_told_to_scripts_as_json(home: Path) -> None:
    """The program announces itself as a driver does, and has ended before it could be asked."""
    ended = detached(
        "import os\n"
        "from seamark.checkpoint.executions import ExecutionStart\n"
        "from seamark.checkpoint.executions import announce\n"
        "start = ExecutionStart('a' * 32, 'j', 'h', os.getpid(), 1.0, 'http://127.0.0.1:9')\n"
        "announce(start, 'file:///s/j')\n",
        "--json",
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["jid"], told["name"], told["state"]) == ("a" * 32, "j", "FINISHED")
    assert told["directory"] == "file:///s/j"
    assert Path(told["log"]).exists()

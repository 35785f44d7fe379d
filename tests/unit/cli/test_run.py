"""`seamark run`, as a user calls it: real processes, with programs without Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SEAMARK = [sys.executable, "-m", "seamark.cli.main"]
SHOW = """
import os, sys
from seamark.api.settings import resolve
import seamark as sm
config, *_ = resolve("j", sm.CheckpointConfig(storage="/s", interval="1s"))
print(sys.argv[1:], config.interval, __name__, os.environ.get("SEAMARK_RESTORE"))
sys.exit(7)
"""


@pytest.fixture
def seamark_run(tmp_path: Path):
    def call(
        program: str, before: list[str] | None = None, after: list[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        (tmp_path / "app.py").write_text(program)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SEAMARK_")}
        return subprocess.run(
            [*SEAMARK, "run", *(before or []), "app.py", *(after or [])],
            cwd=tmp_path, capture_output=True, text=True, timeout=300,
            env={**clean, **(environment or {})},
        )  # fmt: skip

    return call


def test_settings_restore_path_arguments_and_exit_code_go_through(seamark_run) -> None:
    ended = seamark_run(
        SHOW,
        ["-D", "checkpoint.timeout=1min", "-Dcheckpoint.interval=4s", "-s", "/s/a"],
        ["-x", "-D", "k=v", "--help"],
    )
    assert ended.stdout.split("\n")[0] == "['-x', '-D', 'k=v', '--help'] 4s __main__ /s/a"
    note = "-D stands after the program, so the program gets it, and seamark does not\n"
    assert (ended.returncode, ended.stderr) == (7, note)


def test_without_options_the_program_holds(seamark_run) -> None:
    ended = seamark_run(SHOW)
    assert ended.stdout.split("\n")[0] == "[] 1s __main__ None"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-D", "checkpoint.intervall=1"], "did you mean 'checkpoint.interval'?"),
        (["-D", "checkpoint.interval"], "give key=value"),
        (["-D", "checkpoint.interval=often"], "'often' is not a duration"),
        (["-D", "checkpoint.mode=twice"], "checkpoint.mode was given on the command line"),
    ],
)
def test_a_mistake_is_one_paragraph(seamark_run, options: list[str], message: str) -> None:
    ended = seamark_run(SHOW, options)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("seamark: ")
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_mistake_in_the_program_is_one_paragraph_too(seamark_run) -> None:
    program = "import atexit, seamark as sm\natexit.register(print, 'ended')\n"
    ended = seamark_run(program + "sm.CheckpointConfig(storage='/s', interval='often')\n")
    assert (ended.returncode, ended.stdout) == (2, "ended\n")
    assert ended.stderr.startswith("seamark: CheckpointConfig: interval: 'often'")
    assert ended.stderr.count("\n") == 1


def test_a_bug_of_the_program_keeps_its_traceback(seamark_run) -> None:
    ended = seamark_run("import seamark\ndef f():\n    1 / 0\nf()\n")
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert 'app.py", line 3, in f' in ended.stderr
    assert ended.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_no_such_program(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*SEAMARK, "run", "missing.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("seamark: missing.py: there is no such file")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_the_program(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "app.py").write_text(
        "import signal, sys, time\n"
        "for n in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(n, lambda n, _: sys.exit(40 + n))\n"
        "print('ready', flush=True)\n"
        "while True:\n"  # a sleep that begins after the signal is not cut short
        "    time.sleep(0.1)\n"
    )
    with subprocess.Popen(
        [*SEAMARK, "run", "app.py"], cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        expected = -9 if number is signal.SIGKILL else 40 + number
        assert process.wait(60) == expected


def test_ctrl_c_while_the_program_begins_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import time, seamark\nprint('ready', flush=True)\nwhile True:\n    time.sleep(0.1)\n"
    )
    command = [*SEAMARK, "run", "app.py"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (said, process.returncode) == ("seamark: interrupted\n", -signal.SIGINT)


NO_JOB = "print('hello')\n"


OPTIONS = pytest.mark.parametrize(
    "options",
    [["-p", "99999"], ["-s", "/s/a"], ["-n"], ["--claim-mode", "claim"], ["-s", "/s/a", "-n"]],
    ids=" ".join,
)
GOOD_ENDS = pytest.mark.parametrize("end", ["", "import sys; sys.exit()", "raise SystemExit(0)"])


@OPTIONS
@GOOD_ENDS
def test_a_program_without_a_job_ignores_no_option_silently(
    seamark_run, options: list[str], end: str
) -> None:
    ended = seamark_run(NO_JOB + end, options)
    assert (ended.returncode, ended.stdout) == (2, "hello\n")
    given = " ".join(option for option in options if option.startswith("-"))
    assert ended.stderr.startswith("seamark: app.py has ended without having run a job: ")
    assert f": {given} had no effect" in ended.stderr


@GOOD_ENDS
def test_a_program_without_a_job_and_without_options_ends_well(seamark_run, end: str) -> None:
    assert seamark_run(NO_JOB + end).returncode == 0


@OPTIONS
def test_a_program_without_a_job_keeps_its_own_exit_code(seamark_run, options: list[str]) -> None:
    assert seamark_run(NO_JOB + "raise SystemExit(5)", options).returncode == 5


def test_a_program_that_is_expected_to_run_a_job_is_run_as_python_runs_it(
    seamark_run, tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    program = (
        "import os, pickle, sys, __main__\n"
        "from beside import NAME\n"
        "class Here: pass\n"
        "print(__name__, __main__.Here is Here, NAME, os.path.basename(__file__), sys.argv)\n"
        "print(type(pickle.loads(pickle.dumps(Here()))) is Here, 'main' in globals())\n"
        "os.environ.pop('SEAMARK_EXPECTING_JOB')  # as Job.run does\n"
    )
    ended = seamark_run(program, ["-p", "2"], ["-x"])
    assert ended.stdout.splitlines() == [
        "__main__ True beside app.py ['app.py', '-x']",
        "True False",
    ]
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = seamark_run("import seamark\ndef f():\n    1 / 0\nf()\n", ["-p", "2"])
    assert ended.returncode == 1
    assert 'app.py", line 3, in f\n    1 / 0\n' in ended.stderr


def plain(tmp_path: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program as its user would without `seamark run`."""
    (tmp_path / "app.py").write_text(program)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("SEAMARK_", "JAVA_HOME"))}
    return subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={**clean, **environment},
    )  # fmt: skip


JOB = """import seamark as sm
job = sm.Job("j", sm.CheckpointConfig(storage="store", interval="1s"))
def declare():
    return job.source(sm.DatagenSource(rows_per_second=1), uid="rows")
declare()
"""


def test_a_plain_program_without_java_ends_with_a_paragraph(tmp_path: Path) -> None:
    ended = plain(tmp_path, JOB, PATH="/nonexistent")
    assert ended.returncode == 1
    lines = [line for line in ended.stderr.splitlines() if set(line) - set(" ^~")]
    assert lines == [
        f'  File "{tmp_path}/app.py", line 5, in <module>',
        "    declare()",
        f'  File "{tmp_path}/app.py", line 4, in declare',
        '    return job.source(sm.DatagenSource(rows_per_second=1), uid="rows")',
        "MissingDependencyError: no java on PATH, and JAVA_HOME is not set; install a Java 17 "
        "runtime, or set JAVA_HOME to one",
    ]


@pytest.mark.parametrize("value", ["x:y", "x:" + 5000 * "9"])
def test_a_failpoint_that_is_none_ends_with_a_paragraph(tmp_path: Path, value: str) -> None:
    ended = plain(tmp_path, JOB, SEAMARK_FAILPOINT=value)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    says = f"ConfigurationError: SEAMARK_FAILPOINT is '{value}'; give name"
    assert ended.stderr.splitlines()[-1].startswith(says)
    command = subprocess.run(
        [*SEAMARK, "list", "--storage", "store"], cwd=tmp_path, capture_output=True, text=True,
        timeout=300, env={**os.environ, "SEAMARK_FAILPOINT": value},
    )  # fmt: skip
    assert command.returncode in (0, 2)
    assert "Traceback" not in command.stderr


def test_a_plain_program_keeps_the_traceback_of_what_is_no_mistake(tmp_path: Path) -> None:
    ended = plain(tmp_path, "import seamark\n1 / 0\n")
    assert ended.returncode == 1
    assert ended.stderr.startswith("Traceback (most recent call last):")


FENCED = """import sys
import seamark as sm
def run():
    try:
        raise KeyError("in between")
    except KeyError:
        raise sm.FencedError("taken over") from eval(sys.argv[1])
"""


@pytest.mark.parametrize("cause", ["None", "OSError()"])
def test_an_end_that_seamark_names_is_a_paragraph(tmp_path: Path, seamark_run, cause: str) -> None:
    program = FENCED + "run()\n"
    ended = seamark_run(program, after=[cause])
    assert (ended.returncode, ended.stderr) == (1, "seamark: FencedError: taken over\n")
    assert "Traceback" in seamark_run(program, before=["-vv"], after=[cause]).stderr
    alone = plain(tmp_path, program.replace("sys.argv[1]", repr(cause)))
    assert alone.returncode == 1
    assert "Traceback" not in alone.stderr
    assert alone.stderr.endswith("FencedError: taken over\n")


def test_explain_shows_the_programs_own_lines_alone(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import seamark\nimport nowhere_to_be_found\n")
    ended = subprocess.run(
        [*SEAMARK, "explain", "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1
    assert re.findall(r"line \d+", ended.stderr) == ["line 2"], ended.stderr
    assert ended.stderr.endswith("ModuleNotFoundError: No module named 'nowhere_to_be_found'\n")


def test_a_mistake_in_a_setting_shows_the_line_that_has_it_alone(tmp_path: Path) -> None:
    ended = plain(tmp_path, "import seamark as sm\nsm.CheckpointConfig(interval='2 parsecs')\n")
    assert re.findall(r"line \d+", ended.stderr) == ["line 2"], ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("ConfigurationError: CheckpointConfig")

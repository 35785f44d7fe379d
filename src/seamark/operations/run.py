"""`seamark run app.py`: run a program as ``python app.py`` would, with settings laid over its own.

The process becomes the program's (exec), and so do its signals, exit code and files; with an option
of spark-submit it becomes spark-submit's. The environment carries the command line's settings:
`api/settings.py` and `Job.run` read them. In cluster mode the driver runs elsewhere: the same
variables travel as settings of YARN or Kubernetes. ``-d`` and ``--plan`` are in `run_detached.py`.
"""

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import quote

from seamark.api.settings import (
    CLAIM_MODE_VARIABLE,
    COMMAND_LINE_VARIABLE,
    DROP_STATE_VARIABLE,
    EXPECTING_VARIABLE,
    JOB_VARIABLE,
    PARALLELISM_VARIABLE,
    RESTORE_VARIABLE,
    check_command_line,
)
from seamark.model.errors import MissingDependencyError, UserError
from seamark.model.uncaught import last_words
from seamark.operations.program_file import require_program
from seamark.spark import class_archive

SparkOptions = Mapping[str, str | Sequence[str] | None]
"""Options of spark-submit by name, with their values; each value of a sequence repeats it."""

RUN_VARIABLE = "SEAMARK_RUN"
"""Environment: set by `run`; makes ``import seamark`` call `prepare_program`."""
LOG_LEVEL_VARIABLE = "SEAMARK_LOG_LEVEL"
"""Environment: Seamark's log level in the program, e.g. INFO, where it configures no logging."""
_EXPECTING_JOB = "from seamark.operations.run import main; main(globals())"
_ELSEWHERE = re.compile(r"\w+:/")
_DEPLOY_MODE = re.compile(r"^\s*spark\.submit\.deployMode[\s=:]+(\w+)", re.MULTILINE)


def given(options: SparkOptions) -> bool:
    """Whether any option has a value: only then is the program submitted."""
    return any(options.values())


def submit_command(
    options: SparkOptions, app: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command to submit the program, and the variables to add to its environment.
    `variables` are meant for the program's environment. Raises UserError if they cannot reach a
    driver of this deploy mode, MissingDependencyError without a spark-submit."""
    settings = _options(options)
    if deploy_mode(options) != "cluster":
        environment = dict(variables)
        if "PYSPARK_DRIVER_PYTHON" not in os.environ:
            environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return [str(_spark_submit()), *settings, app, *arguments], environment
    master = str(options.get("--master") or "")
    if master.startswith("yarn"):
        prefix = "spark.yarn.appMasterEnv."
    elif master.startswith("k8s"):
        prefix = "spark.kubernetes.driverEnv."
    else:
        raise UserError(
            f"--deploy-mode cluster with the master {master or '(none given)'}: spark-submit puts "
            "a Python program's driver on YARN and Kubernetes alone; use --deploy-mode client, or, "
            "on a standalone cluster, the command in docs/deploy/standalone.md"
        )
    for key, value in variables.items():
        if key == COMMAND_LINE_VARIABLE:  # YARN's launch script loses JSON's quotes
            value = quote(value)
        settings += ["--conf", f"{prefix}{key}={value}"]
    return [str(_spark_submit()), *settings, app, *arguments], {}


def deploy_mode(options: SparkOptions) -> str:
    """Return ``"client"`` or ``"cluster"``, as spark-submit will find it."""
    if mode := options.get("--deploy-mode"):
        return str(mode)
    for conf in options.get("--conf") or ():
        if match := _DEPLOY_MODE.match(conf):
            return match[1]
    if mode := os.environ.get("DEPLOY_MODE"):
        return mode
    home = os.environ.get("SPARK_CONF_DIR") or f"{os.environ.get('SPARK_HOME', '')}/conf"
    path = Path(str(options.get("--properties-file") or f"{home}/spark-defaults.conf"))
    try:
        match = _DEPLOY_MODE.search(path.read_text(encoding="utf-8"))
    except OSError:  # spark-submit reports it, if the user named it
        return "client"
    return match[1] if match else "client"


def _options(options: SparkOptions) -> list[str]:
    arguments = []
    for name, value in options.items():
        for each in [value] if isinstance(value, str) else value or ():
            arguments += [name, each]
    return arguments


def _spark_submit() -> Path:
    """Return spark-submit of SPARK_HOME, as Spark's commands do, or of this Python's pyspark."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        spec = importlib.util.find_spec("pyspark")
        home = ((spec and spec.submodule_search_locations) or [""])[0]
    path = Path(home, "bin", "spark-submit")
    if not path.is_file():
        raise MissingDependencyError(
            f"there is no {path}; install pyspark, or set SPARK_HOME to a Spark distribution"
        )
    return path


@dataclass(frozen=True)
class Program:
    """A program to run, with the options of its command line.

    `settings` are ``key=value`` texts, the later ones winning. `restore` is the path of a savepoint
    or a retained checkpoint to start from. `drop_state` drops everything without a taker,
    `parallelism` is the number of state partitions, and `claim_mode` settles the savepoint's owner
    after the restore; of a program with several jobs all this is for the one named `job`. With an
    option of `spark` the program is submitted. `log_level`: "" for none.
    """

    app: str
    arguments: Sequence[str] = ()
    settings: Sequence[str] = ()
    restore: str | None = None
    spark: SparkOptions = field(default_factory=dict)
    log_level: str = ""
    drop_state: bool = False
    parallelism: int | None = None
    claim_mode: str | None = None
    job: str | None = None

    @property
    def runs_on_a_cluster(self) -> bool:
        """Whether its driver will be a process on another machine."""
        return given(self.spark) and deploy_mode(self.spark) == "cluster"

    @property
    def for_job(self) -> Sequence[str]:
        """The given options obeyed by `Job.run` alone."""
        options = {
            "-s": self.restore is not None,
            "-n": self.drop_state,
            "-p": self.parallelism is not None,
            "--claim-mode": self.claim_mode is not None,
            "--job": self.job is not None,
        }
        return [option for option, is_given in options.items() if is_given]

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command to execute, and its environment. Raises UserError if there is no such
        program or setting, or an option cannot be obeyed."""
        elsewhere = self.runs_on_a_cluster and _ELSEWHERE.match(self.app)
        if not elsewhere:
            require_program(Path(self.app))
        # A shell's unset variable: the job would begin anew instead.
        if self.restore == "":
            raise UserError("-s is ''; give the path of a savepoint or of a retained checkpoint")
        if self.job == "":
            raise UserError("--job is ''; give the name of a job")
        check_command_line(self.settings)
        said = {
            RUN_VARIABLE: "1",
            COMMAND_LINE_VARIABLE: json.dumps(list(self.settings)) if self.settings else None,
            RESTORE_VARIABLE: self.restore,
            DROP_STATE_VARIABLE: "1" if self.drop_state else None,
            PARALLELISM_VARIABLE: str(self.parallelism or ""),
            CLAIM_MODE_VARIABLE: self.claim_mode,
            JOB_VARIABLE: self.job,
            LOG_LEVEL_VARIABLE: self.log_level,
        }
        variables = {name: value for name, value in said.items() if value}
        command = [sys.executable, self.app, *self.arguments]
        if given(self.spark):
            command, variables = submit_command(self.spark, self.app, self.arguments, variables)
        return command, {**class_archive.variables(), **os.environ, **variables}

    def ask(self, variable: str, file: Path, answer: Path) -> tuple[dict[str, Any] | None, int]:
        """Execute it up to its `job.run()`, which finds `file` by `variable`, writes `answer` and
        ends. Return the answer, None if there is none, and the exit code. Its output goes to
        stderr. Raises UserError as `command`."""
        command, environment = self.command()
        environment[variable] = str(file)
        code = subprocess.run(command, stdout=sys.stderr, env=environment, check=False).returncode
        told = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else None
        return told, code


def has_ended(what: str, code: int) -> str:
    """Begin a sentence about a program's end with this exit code."""
    return f"{what} has ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def has_not_answered(program: Program, code: int) -> str:
    """Say why a program has not answered at its `Job.run`."""
    ended = has_ended(program.app, code)
    if code:
        return f"{ended} before its job could answer; see its own words above"
    if program.job:
        return f"{ended} without having run a job named {program.job!r}; correct --job"
    return f"{ended} without having run a job; it must call job.run()"


def run(program: Program) -> NoReturn:
    """Become ``python <app> <arguments>``, with this Python, or spark-submit.

    Raises UserError before, as `Program.command`. The program gets exit code 2 if it ends well
    without a job although an option for a job was given. An error of Seamark's caught nowhere ends
    the program with one paragraph on stderr, and exit code 2 if it is a UserError, else 1; any
    other is shown as by Python.
    """
    command, environment = program.command()
    if program.for_job and not given(program.spark):
        command[1:1] = ["-c", _EXPECTING_JOB]
        environment[EXPECTING_VARIABLE] = " ".join(program.for_job)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)


def prepare_program() -> None:
    """Called by ``import seamark`` in a program started by `run`. Sets the log level of the command
    line, and shows an error of Seamark's at the program's end as the command line does."""
    before = sys.excepthook

    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if kind is KeyboardInterrupt:  # while it starts: a running job takes it for `stop`
            print("seamark: interrupted", file=sys.stderr)  # noqa: T201
            return
        if (words := last_words(error)) is None:
            before(kind, error, traceback)
            return
        is_mistake = isinstance(error, UserError)
        name = "" if is_mistake else f"{kind.__name__}: "
        print(f"seamark: {name}{words}", file=sys.stderr)  # noqa: T201 - the program's last words
        raise SystemExit(2 if is_mistake else 1)  # from an excepthook this sets the exit code

    sys.excepthook = show
    if level := os.environ.pop(LOG_LEVEL_VARIABLE, None):  # not for Spark's Python workers
        # Not a handler of the root logger: logging.basicConfig would then do nothing in the
        # program. This one gets the records no other handler takes.
        last = logging.StreamHandler()
        last.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.lastResort = last
        try:
            logging.getLogger("seamark").setLevel(level)
        except ValueError:
            raise UserError(
                f"{LOG_LEVEL_VARIABLE} is {level!r}; give DEBUG, INFO, WARNING or ERROR"
            ) from None


def main(names: dict[str, Any]) -> None:
    """Execute the program at the first argument's path, with `names`, the globals of ``__main__``.
    Exits with 2 if the program ends well without a call of `Job.run`: its options for a job had no
    effect, and nothing else would say so."""
    del sys.argv[0]
    app = sys.argv[0]
    sys.path[0] = str(Path(app).resolve().parent)
    del names["main"]
    names["__file__"] = app
    code = compile(Path(app).read_bytes(), app, "exec", dont_inherit=True)
    try:
        exec(code, names)
    except SystemExit as ended:
        if ended.code:
            raise
    if options := os.environ.get(EXPECTING_VARIABLE):
        print(  # noqa: T201 - the program's last words
            f"seamark: {app} has ended without having run a job: {options} had no effect; call "
            "job.run() in it, or leave that out",
            file=sys.stderr,
        )
        raise SystemExit(2)

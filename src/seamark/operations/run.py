"""`seamark run app.py`: run a program as ``python app.py`` would, with settings laid over its own.

The process becomes the program's (exec), so its signals, exit code and files are its own; with an
option of spark-submit's it becomes spark-submit's. What the command line gave goes along in the
environment: `api/settings.py` and `Job.run` read it. With ``-d``, and with
``--plan`` too: `run_detached.py`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from seamark.api.settings import (
    CLAIM_MODE_VARIABLE,
    COMMAND_LINE_VARIABLE,
    DROP_STATE_VARIABLE,
    EXPECTING_VARIABLE,
    PARALLELISM_VARIABLE,
    RESTORE_VARIABLE,
    check_command_line,
)
from seamark.model.errors import UserError
from seamark.operations.spark_submit import SparkOptions, deploy_mode, given, submit_command

RUN_VARIABLE = "SEAMARK_RUN"
"""Environment: set by `run`; makes ``import seamark`` call `prepare_program`."""
LOG_LEVEL_VARIABLE = "SEAMARK_LOG_LEVEL"
"""Environment: Seamark's log level in the program, e.g. INFO, where it configures no logging."""
_EXPECTING_JOB = "from seamark.operations.run import main; main(globals())"
_ELSEWHERE = re.compile(r"\w+:/")


@dataclass(frozen=True)
class Program:
    """A program to run, and what the command line says about it.

    `settings` are ``key=value`` texts, the later ones winning; `restore` is the path of a savepoint
    or a retained checkpoint to start from, and `drop_state` whether what has no taker is dropped;
    `parallelism` is the number of state partitions, and `claim_mode` whose the savepoint is then;
    with an option of `spark` the program is submitted; `log_level` is "" where the command line
    says nothing.
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

    @property
    def runs_on_a_cluster(self) -> bool:
        """Whether its driver will be a process of another machine's."""
        return given(self.spark) and deploy_mode(self.spark) == "cluster"

    @property
    def for_job(self) -> Sequence[str]:
        """The options given that only `Job.run` obeys."""
        options = {
            "-s": self.restore is not None,
            "-n": self.drop_state,
            "-p": self.parallelism is not None,
            "--claim-mode": self.claim_mode is not None,
        }
        return [option for option, is_given in options.items() if is_given]

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return what to execute, and its environment. Raises UserError if there is no such
        program or setting, or an option cannot be kept."""
        elsewhere = self.runs_on_a_cluster and _ELSEWHERE.match(self.app)
        if not elsewhere and not Path(self.app).is_file():
            raise UserError(f"{self.app}: there is no such file; give the path of a Python program")
        check_command_line(self.settings)
        said = {
            RUN_VARIABLE: "1",
            COMMAND_LINE_VARIABLE: json.dumps(list(self.settings)) if self.settings else None,
            RESTORE_VARIABLE: self.restore,
            DROP_STATE_VARIABLE: "1" if self.drop_state else None,
            PARALLELISM_VARIABLE: str(self.parallelism or ""),
            CLAIM_MODE_VARIABLE: self.claim_mode,
            LOG_LEVEL_VARIABLE: self.log_level,
        }
        variables = {name: value for name, value in said.items() if value}
        command = [sys.executable, self.app, *self.arguments]
        if given(self.spark):
            command, variables = submit_command(self.spark, self.app, self.arguments, variables)
        return command, {**os.environ, **variables}


def run(program: Program) -> NoReturn:
    """Become ``python <app> <arguments>``, with this Python, or spark-submit.

    Raises UserError before that, as `Program.command`. A program that ends well without a job,
    although an option was given that only a job obeys, ends with exit code 2. In the program a
    UserError that nothing catches ends it with one paragraph on stderr and exit code 2; any other
    exception is shown with its traceback, as Python does.
    """
    command, environment = program.command()
    if program.for_job and not given(program.spark):
        command[1:1] = ["-c", _EXPECTING_JOB]
        environment[EXPECTING_VARIABLE] = " ".join(program.for_job)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)


def prepare_program() -> None:
    """Called by ``import seamark`` in a program that `run` has started: a UserError that ends it
    is shown as the command line shows it, and the log level of the command line holds."""
    before = sys.excepthook

    def show(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, UserError):
            before(kind, error, traceback)
            return
        print(f"seamark: {error}", file=sys.stderr)  # noqa: T201 - the program's last words
        raise SystemExit(2)  # from an excepthook this sets the exit code

    sys.excepthook = show
    if level := os.environ.pop(LOG_LEVEL_VARIABLE, None):  # not for Spark's Python workers
        # Not a handler of the root logger's: logging.basicConfig would then do nothing in the
        # program. What no handler takes goes to this one.
        last = logging.StreamHandler()
        last.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.lastResort = last
        logging.getLogger("seamark").setLevel(level)


def main(names: dict[str, Any]) -> None:
    """Execute the program whose path is the first argument, with `names` as its globals: those of
    ``__main__``. Exits with 2 if it ends well and has not called `Job.run`: it has ignored options
    that only a job obeys, and nothing else would say so."""
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

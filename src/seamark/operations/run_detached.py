"""`seamark run -d app.py`: start a driver that outlives the command, and wait until its job runs.
And ``-s PATH --plan``: preview the restore without doing it.

The driver gets a session of its own, no input, and a log file. It writes its job's address into a
file (`checkpoint/executions.py`); the job counts as running when it says RUNNING itself.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from seamark.api.settings import PLAN_VARIABLE
from seamark.checkpoint.executions import (
    ANNOUNCE_VARIABLE,
    LOG_VARIABLE,
    Execution,
    ExecutionStart,
)
from seamark.checkpoint.lineages import job_directory
from seamark.jobs.driver import Driver
from seamark.jobs.registry import RegisteredJob
from seamark.model.errors import DriverUnreachableError, OperationFailedError, UserError
from seamark.model.home import HOME_VARIABLE, seamark_home
from seamark.model.job_state import JobState
from seamark.operations.run import Program, has_ended, has_not_answered

TAIL_LINES = 20
SILENT_S = 60.0
"""How long a driver may be silent that has told its address."""
_POLL_S = 0.1
_SEEN = (JobState.RUNNING, JobState.FINISHED)


class ProgramEndedError(OperationFailedError):
    """The program ended before its job ran. `tail` is the end of its output; `code` is its exit
    code, 2 for a mistake its user can mend."""

    def __init__(self, message: str, tail: list[str], code: int) -> None:
        super().__init__(message)
        self.tail = tail
        self.code = code


def run_detached(
    program: Program, log: Path | None, tick: Callable[[Path], None] = lambda log: None
) -> RegisteredJob:
    """Start the program in the background and return its job when it runs, or has FINISHED already;
    one without a REST interface as UNREACHABLE, once its driver has announced it.

    The program's output is appended to `log`; None makes a log below ``~/.seamark/logs``. `tick` is
    called now and then, with the log. Raises UserError as `Program.command` does, and for a driver
    on another machine; ProgramEndedError if the program ends first; DriverUnreachableError if
    nothing answers at its address for SILENT_S. Then, and at Ctrl-C, the program goes on.
    """
    if program.runs_on_a_cluster:
        raise UserError(
            "-d waits for a driver on this machine, and --deploy-mode cluster puts it elsewhere: "
            "leave -d out (on YARN, --conf spark.yarn.submit.waitAppCompletion=false returns at "
            "once), and look for the job with seamark list"
        )
    command, environment = replace(program, log_level=program.log_level or "INFO").command()
    path, out = _open_log(program.app, log)
    scratch = Path(tempfile.mkdtemp(prefix="seamark-run-"))
    announcement = scratch / "announced.json"
    try:
        with os.fdopen(out, "ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **environment,
                    ANNOUNCE_VARIABLE: str(announcement),
                    LOG_VARIABLE: str(path.absolute()),
                },
                start_new_session=True,
            )
        heard = time.monotonic()
        while True:
            job = _look(announcement, process, path)
            if job is None or job.state is not JobState.UNREACHABLE:
                heard = time.monotonic()
            if job is None and process.poll() is not None and not announcement.exists():
                raise _ended(program.app, process.returncode, path)
            if job is not None and (job.state in _SEEN or not job.start.rest_url):
                return job
            if job is not None and time.monotonic() > heard + SILENT_S:
                raise DriverUnreachableError(
                    f"job {job.name!r} goes on (pid {process.pid}), but nothing answers at "
                    f"{job.start.rest_url}; see whether rest.advertised_address can be reached "
                    f"from here; what it says is in {path}"
                )
            tick(path)
            time.sleep(_POLL_S)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _look(announcement: Path, process: subprocess.Popen[bytes], log: Path) -> RegisteredJob | None:
    """Return the job; None before its driver has announced it."""
    code = process.poll()  # before the file: a program ended by now has announced its job
    try:
        announced = json.loads(announcement.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    uri = announced.pop("directory")
    storage = job_directory(uri).rpartition("/")[0]
    directory = uri.removeprefix(f"{storage}/")
    start = ExecutionStart(**{**announced, "log": str(log)})
    execution = Execution(0, start, [], None)
    state = Driver(execution, start.name).state()
    if code is not None:
        if code:
            raise _ended(f"job {start.name!r}", code, log)
        state = JobState.FINISHED
    return RegisteredJob(storage, directory, start.name, execution, state)


def _open_log(app: str, log: Path | None) -> tuple[Path, int]:
    if log is None:
        directory = seamark_home() / "logs"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the directory {directory} for logs cannot be made: {error.strerror}; give --log, "
                f"or another {HOME_VARIABLE}"
            ) from None
        log = directory / f"{Path(app).stem}-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.log"
    try:
        return log, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise UserError(
            f"the log {log} cannot be written: {error.strerror}; give another --log"
        ) from None


def _ended(what: str, code: int, log: Path) -> ProgramEndedError:
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    message = f"{has_ended(what, code)} before it could be seen running"
    if code == 0:
        message = f"{has_ended(what, code)} without having run a job; call job.run() in it"
    return ProgramEndedError(f"{message}; all it said is in {log}", tail, code)


def plan_of(program: Program) -> dict[str, Any]:
    """Return the plan as `RestorePlan.to_json` gives it. The program is executed up to its
    `job.run()`, writes the plan into a file named by this process, and ends. Its output goes to
    stderr. Raises UserError as `Program.command` does, and for a driver on another machine;
    ProgramEndedError if the program ends without a plan, with its own words on stderr."""
    if program.runs_on_a_cluster:
        raise UserError(
            "--plan needs the driver on this machine, and --deploy-mode cluster puts it elsewhere: "
            "leave it out, or use --deploy-mode client"
        )
    with tempfile.TemporaryDirectory(prefix="seamark-plan-") as scratch:
        file = Path(scratch) / "plan.json"
        plan, code = program.ask(PLAN_VARIABLE, file, file)
    if plan is None:
        raise ProgramEndedError(has_not_answered(program, code), [], code)
    return plan

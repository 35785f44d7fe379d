"""`seamark run`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamark.cli import options
from seamark.cli.exits import MISTAKE, NOT_DONE
from seamark.cli.options import text
from seamark.cli.restore_plan import show_plan
from seamark.cli.terminal import say, suggest, waiting
from seamark.cli.visible import echo

if TYPE_CHECKING:
    from seamark.operations.run import Program


class ClaimMode(str, Enum):
    """`restore.plan.ClaimMode`, for the options' help: importing the original takes a second."""

    NO_CLAIM = "no-claim"
    CLAIM = "claim"


_SPARK = "Through spark-submit (any of these)"


def _spark(name: str, help_: str, metavar: str = "TEXT") -> Any:
    return text(metavar, help_, name, rich_help_panel=_SPARK)


_App = Annotated[
    str, typer.Argument(metavar="APP.PY", help="A program that declares and runs a job.")
]
_Arguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARGS", help="The program's own arguments.")
]
_Settings = Annotated[
    list[str] | None,
    text("KEY=VALUE", "Set e.g. checkpoint.interval=5s; may be repeated.", "-D"),
]
_RESTORE = "Start from a savepoint or a retained checkpoint."
_Restore = Annotated[str | None, text("PATH", _RESTORE, "-s", "--from-savepoint")]
_DropState = Annotated[
    bool,
    typer.Option(
        "-n", "--allow-non-restored-state",
        help="Drop the savepoint's state for uids missing from the program.",
    ),
]  # fmt: skip
_PARALLELISM = "State partitions; default: the savepoint's."
_Parallelism = Annotated[int | None, text("N", _PARALLELISM, "-p", "--parallelism", min=1)]
_Claim = Annotated[
    ClaimMode | None,
    typer.Option(
        "--claim-mode", show_default=False,
        help="claim: the job owns the savepoint, and deletes it when its own first "
        "checkpoint is complete. Default: no-claim.",
    ),
]  # fmt: skip
_Plan = Annotated[
    bool, typer.Option("--plan", help="Only show the effect of -s, and what would stop it.")
]
_Detached = Annotated[
    bool, typer.Option("-d", "--detached", help="In the background; return when the job runs.")
]
_Log = Annotated[
    Path | None,
    text("FILE", "With -d: the program's output; default: a new file in ~/.seamark/logs."),
]
_Json = Annotated[
    bool, typer.Option("--json", help="With -d or --plan: print the job, or the plan, as JSON.")
]
_PyFiles = _spark("--py-files", "Python files and zips for the executors, by comma.")
_Properties = _spark("--properties-file", "Instead of spark-defaults.conf.", "FILE")
_VERBOSE = "Log Seamark's work, a line an epoch, if the program sets up no logging."
_Verbose = Annotated[int, text("", _VERBOSE, "-v", "--verbose", count=True)]


def run(
    context: typer.Context,
    app_path: _App,
    arguments: _Arguments = None,
    settings: _Settings = None,
    restore: _Restore = None,
    drop_state: _DropState = False,
    parallelism: _Parallelism = None,
    claim_mode: _Claim = None,
    plan: _Plan = False,
    detached: _Detached = False,
    log: _Log = None,
    as_json: _Json = False,
    master: Annotated[str | None, _spark("--master", "local[4], spark://…, yarn, k8s://…")] = None,
    deploy_mode: Annotated[
        str | None, _spark("--deploy-mode", "Where the driver runs: client or cluster.")
    ] = None,
    conf: Annotated[
        list[str] | None, _spark("--conf", "A setting of Spark's; may be repeated.", "KEY=VALUE")
    ] = None,
    packages: Annotated[str | None, _spark("--packages", "Maven coordinates, by comma.")] = None,
    jars: Annotated[str | None, _spark("--jars", "Jars, by comma.")] = None,
    py_files: Annotated[str | None, _PyFiles] = None,
    files: Annotated[str | None, _spark("--files", "Files for the executors, by comma.")] = None,
    archives: Annotated[
        str | None, _spark("--archives", "Archives to be unpacked on the executors, by comma.")
    ] = None,
    properties_file: Annotated[str | None, _Properties] = None,
    driver_memory: Annotated[str | None, _spark("--driver-memory", "E.g. 2g.")] = None,
    executor_memory: Annotated[str | None, _spark("--executor-memory", "E.g. 4g.")] = None,
    num_executors: Annotated[str | None, _spark("--num-executors", "How many.", "N")] = None,
    executor_cores: Annotated[str | None, _spark("--executor-cores", "Of each.", "N")] = None,
    name: Annotated[str | None, _spark("--name", "The application's name for Spark.")] = None,
    queue: Annotated[str | None, _spark("--queue", "YARN's queue.")] = None,
    verbose: _Verbose = 0,
) -> None:  # fmt: skip
    """Run a program as `python APP.PY` does, with settings laid over its own.

    The command line wins over seamark.toml, and seamark.toml over the program; job.config() shows
    the result. Options stand before APP.PY; everything after it is the program's. A job with
    checkpoints goes on after its last decided epoch.
    """
    from seamark.operations.run import Program

    program = Program(
        app=app_path,
        arguments=arguments or [],
        settings=settings or [],
        restore=restore,
        drop_state=drop_state,
        parallelism=parallelism,
        claim_mode=claim_mode.value if claim_mode is not None else None,
        spark={
            option.opts[0]: context.params[str(option.name)]
            for option in context.command.params
            if getattr(option, "rich_help_panel", None) == _SPARK
        },
        log_level=("", "INFO", "DEBUG")[min(verbose, 2)],
    )
    _start(program, log, plan=plan, detached=detached, as_json=as_json)


def _start(
    program: Program, log: Path | None, *, plan: bool, detached: bool, as_json: bool
) -> None:
    from seamark.operations.run import run as run_app

    if plan:
        if detached or log is not None:
            raise typer.BadParameter("--plan runs no job: leave -d and --log out")
        show_plan(program, as_json=as_json)
    elif detached:
        _run_detached(program, log, as_json=as_json)
    elif log is not None or as_json:
        option = "--log" if log is not None else "--json"
        raise typer.BadParameter(
            f"{option} goes with -d{' or --plan' if as_json else ''}; without it the program "
            "writes to this terminal"
        )
    else:
        run_app(program)


def _run_detached(program: Program, log: Path | None, *, as_json: bool) -> None:
    from seamark.operations.run_detached import ProgramEndedError, run_detached
    from seamark.operations.storage import storage_option

    seen: list[Path] = []
    try:
        with waiting(f"Starting {program.app}") as tick:

            def show(path: Path) -> None:
                seen[:] = [path]
                tick(_last_line(path))

            job = run_detached(program, log, show)
    except ProgramEndedError as error:
        for line in error.tail:
            say(f"  {line}")
        say(f"seamark: {error}")
        raise typer.Exit(MISTAKE if error.code == MISTAKE else NOT_DONE) from None
    except KeyboardInterrupt:
        for path in seen:
            say(f"\n{program.app} goes on in the background; what it says is in {path}")
        raise
    if as_json:
        options.echo_json(job.to_json())
        return
    echo(f"Job {job.name} has been started with JobID {job.job_id}: {job.state}")
    say(f"driver  pid {job.pid}, {job.rest_url}")
    say(f"log     {job.log}")
    at = storage_option(job.directory.rpartition("/")[0])
    suggest(
        f"seamark info {job.name}{at}",
        f"seamark checkpoints {job.name}{at}",
        f"seamark stop {job.name}{at}",
    )


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 1000, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""

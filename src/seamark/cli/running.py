"""`seamark run`."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seamark.cli import options
from seamark.cli.exits import MISTAKE, NOT_DONE
from seamark.cli.options import flag, text
from seamark.cli.restore_plan import show_plan
from seamark.cli.terminal import say, suggest, waiting
from seamark.cli.visible import echo
from seamark.savepoints.restore.plan import ClaimMode

if TYPE_CHECKING:
    from seamark.operations.run import Program, SparkOptions


_SPARK = "Through spark-submit (any of these)"


def _spark(help_: str, metavar: str = "TEXT") -> Any:
    return text(metavar, help_, rich_help_panel=_SPARK)


@dataclass(frozen=True)
class Submitted:
    """Options of spark-submit, by their names there."""

    master: str | None = _spark("local[4], spark://…, yarn, k8s://…")
    deploy_mode: str | None = _spark("Where the driver runs: client or cluster.")
    conf: list[str] | None = _spark("A setting of Spark's; may be repeated.", "KEY=VALUE")
    packages: str | None = _spark("Maven coordinates, by comma.")
    jars: str | None = _spark("Jars, by comma.")
    py_files: str | None = _spark("Python files and zips for the executors, by comma.")
    files: str | None = _spark("Files for the executors, by comma.")
    archives: str | None = _spark("Archives to be unpacked on the executors, by comma.")
    properties_file: str | None = _spark("Instead of spark-defaults.conf.", "FILE")
    driver_memory: str | None = _spark("E.g. 2g.")
    executor_memory: str | None = _spark("E.g. 4g.")
    num_executors: str | None = _spark("How many.", "N")
    executor_cores: str | None = _spark("Of each.", "N")
    name: str | None = _spark("The application's name for Spark.")
    queue: str | None = _spark("YARN's queue.")

    def by_option(self) -> "SparkOptions":
        """Return the values by option."""
        names = [field.name for field in fields(Submitted)]
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}


@dataclass(frozen=True)
class _Run(Submitted):
    settings: list[str] | None = text(
        "KEY=VALUE", "Set e.g. checkpoint.interval=5s; may be repeated.", "-D"
    )
    restore: str | None = text(
        "PATH", "Start from a savepoint or a retained checkpoint.", "-s", "--from-savepoint"
    )
    drop_state: bool = flag(
        "Drop the savepoint's state for uids missing from the program.",
        "-n",
        "--allow-non-restored-state",
    )
    parallelism: int | None = text(
        "N", "State partitions; default: the savepoint's.", "-p", "--parallelism",
        min=1, max=2**31 - 1,
    )  # fmt: skip
    claim_mode: ClaimMode | None = typer.Option(
        None,
        show_default=False,
        help="claim: the job owns the savepoint, and deletes it when its own first "
        "checkpoint is complete. Default: no-claim.",
    )
    job: str | None = options.JobOfProgram
    plan: bool = flag("Only show the effect of -s, and what would stop it.", "--plan")
    detached: bool = flag("In the background; return when the job runs.", "-d", "--detached")
    log: Path | None = text(
        "FILE", "With -d: the program's output; default: a new file in ~/.seamark/logs."
    )
    as_json: bool = flag("With -d or --plan: print the job, or the plan, as JSON.", "--json")
    verbose: int = text(
        "", "Log Seamark's work, a line an epoch, if the program sets up no logging.",
        "-v", "--verbose", default=0, count=True,
    )  # fmt: skip


@options.spread
def run(
    app_path: str = typer.Argument(
        metavar="APP.PY", help="A program that declares and runs a job."
    ),
    arguments: options.Arguments = None,
    *,
    how: _Run,
) -> None:
    """Run a program as `python APP.PY` does, with settings laid over its own.

    The command line wins over seamark.toml, and seamark.toml over the program; job.config() shows
    the result. Options stand before APP.PY; everything after it is the program's. A job with
    checkpoints goes on after its last decided epoch.
    """
    from seamark.operations.run import Program
    from seamark.operations.run import run as run_app

    program = Program(
        app=app_path,
        arguments=arguments or [],
        settings=how.settings or [],
        restore=how.restore,
        drop_state=how.drop_state,
        parallelism=how.parallelism,
        claim_mode=how.claim_mode.value if how.claim_mode is not None else None,
        job=how.job,
        spark=how.by_option(),
        log_level=("", "INFO", "DEBUG")[min(how.verbose, 2)],
    )
    if how.plan:
        if how.detached or how.log is not None:
            raise typer.BadParameter("--plan runs no job: leave -d and --log out")
        show_plan(program, as_json=how.as_json)
    elif how.detached:
        _run_detached(program, how.log, as_json=how.as_json)
    elif how.log is not None or how.as_json:
        option = "--log" if how.log is not None else "--json"
        raise typer.BadParameter(
            f"{option} goes with -d{' or --plan' if how.as_json else ''}; without it the program "
            "writes to this terminal"
        )
    else:
        run_app(program)


def _run_detached(program: "Program", log: Path | None, *, as_json: bool) -> None:
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
    start = job.start
    echo(f"Job {start.name} has been started with JobID {start.job_id}: {job.state.value}")
    say(f"driver  pid {start.pid}, {start.rest_url or 'no address'}")
    say(f"log     {start.log}")
    at = storage_option(job.storage)
    suggest(
        f"seamark info {start.name}{at}",
        f"seamark checkpoints {start.name}{at}",
        f"seamark stop {start.name}{at}",
    )


def _last_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 1000, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""

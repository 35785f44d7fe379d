"""`seamark list`, `info`, `explain` and `checkpoints`: the verbs that change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from seamark.cli import options
from seamark.cli.exits import MISTAKE
from seamark.cli.terminal import reading
from seamark.cli.visible import echo


def list_jobs(
    storage: options.Storage = None,
    running: Annotated[
        bool, typer.Option("--running", "-r", help="Only jobs whose driver answers.")
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Also jobs that finished, were canceled or failed.")
    ] = False,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print the jobs of a storage: those that run, and those whose driver does not answer.

    With --all those too that have ended. A driver that was killed has not said that its job ended:
    the job is UNREACHABLE until its program is started again.
    """
    from seamark.cli import job_page
    from seamark.operations.reading import jobs
    from seamark.operations.storage import storage_of, storage_option

    uri = storage_of("list", storage)
    with reading(uri):
        found = jobs(uri, running=running, ended=all_)
    if as_json:
        echo(json.dumps([job.to_json() for job in found], indent=2))
    else:
        job_page.show_all(found, uri, storage_option(uri), all_=all_)


def info(
    job: options.Job,
    storage: options.Storage = None,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print all that is known of one job, whether it runs, has ended or does not answer."""
    from seamark.cli import job_page
    from seamark.operations.reading import info as job_info
    from seamark.operations.storage import storage_of, storage_option

    uri = storage_of("info", storage)
    with reading(uri):
        found = job_info(job, uri)
    if as_json:
        echo(json.dumps(found.to_json(), indent=2))
    else:
        job_page.show(found, storage_option(uri))


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="APP.PY|JOB", help="A program that declares a job, or a running job."
        ),
    ],
    storage: options.Storage = None,
    preflight: Annotated[
        bool,
        typer.Option("--preflight", help="With APP.PY: also ask the real servers."),
    ] = False,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print the end-to-end guarantee of a program's jobs, the weakest link and all findings.

    The program is loaded but its job is not run: it must be declared at the top level, and run
    under `if __name__ == "__main__":`. For a job, prints the report stored by its last driver at
    the start. Exits with 2 if there is an error among the findings.
    """
    from seamark.model.findings import errors
    from seamark.operations.explain import explain as explain_app
    from seamark.operations.explain import explain_job

    path = Path(what)
    is_program = path.suffix == ".py" or path.is_file()
    if preflight and not is_program:
        raise typer.BadParameter("--preflight needs a program: give APP.PY")
    found = explain_app(path, preflight=preflight) if is_program else explain_job(what, storage)
    if as_json:
        echo(json.dumps({name: report.to_json() for name, report in found.items()}, indent=2))
    else:
        for name, report in found.items():
            echo(f"job {name}")
            echo(str(report))
    if any(errors(report.findings) for report in found.values()):
        raise typer.Exit(MISTAKE)


def checkpoints(
    job: options.Job,
    storage: options.Storage = None,
    checkpoint_id: Annotated[
        int | None,
        typer.Option(
            "--id", metavar="N", help="Show one checkpoint with its operators.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in Flink's fields.")] = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print the history of a job's checkpoints, newest first, whether the job runs or not."""
    from seamark.cli import checkpoint_tables
    from seamark.operations import reading as operation
    from seamark.operations.storage import storage_of

    uri = storage_of("checkpoints", storage)
    with reading(uri):
        found = operation.checkpoints(job, uri)
    if checkpoint_id is not None:
        one = operation.one_checkpoint(found, job, checkpoint_id)
        if as_json:
            echo(json.dumps(one.to_json(details=True), indent=2))
        else:
            checkpoint_tables.show_one(one)
    elif as_json:
        echo(json.dumps(found.to_json(), indent=2))
    else:
        checkpoint_tables.show_all(found)

"""`seamark list`, `info`, `logs`, `explain` and `checkpoints`: the read-only verbs."""

import time
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path

import typer

from seamark.cli import options
from seamark.cli.exits import MISTAKE
from seamark.cli.options import flag, text
from seamark.cli.terminal import reading, stdout
from seamark.cli.visible import echo

WATCH_S = 1.0


def list_jobs(
    storage: options.Storage = None,
    running: bool = flag("Only jobs with an answering driver.", "--running", "-r"),
    all_: bool = flag("Also finished, canceled and failed jobs.", "--all", "-a"),
    watch: bool = flag("Print them again after each change, until Ctrl-C.", "--watch", "-w"),
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print the running jobs of a storage, and the jobs without an answering driver.

    With --all also the ended jobs. A killed driver leaves no record of an end: its job is
    UNREACHABLE until the program is started again. A query of format("seamark") is UNOBSERVED:
    Spark tells nobody when it ends.
    """
    from seamark.cli import job_page
    from seamark.operations.reading import jobs
    from seamark.operations.storage import readable, storage_option

    if watch and as_json:
        raise typer.BadParameter("--watch is for people: ask again and again for --json")
    with reading(storage) as uri:
        listed = jobs(uri, running=running, ended=all_)
    if as_json:
        options.echo_json([job.to_json() for job in listed])
        return
    shown = None
    with suppress(KeyboardInterrupt) if watch else nullcontext():
        while True:
            if listed != shown:
                shown = listed
                if watch:
                    stdout().clear()  # does nothing unless it is a terminal
                job_page.show_all(listed, uri, storage_option(uri), all_=all_)
            if not watch:
                return
            time.sleep(WATCH_S)
            with readable(uri):
                listed = jobs(uri, running=running, ended=all_)


def logs(
    job: options.Job,
    storage: options.Storage = None,
    follow: bool = flag("Also what comes, until the job ends.", "--follow", "-f"),
    verbose: options.Verbose = 0,
) -> None:
    """Print the output of a job that `run -d` has started on this machine."""
    from seamark.operations.job_log import output_of

    with reading(storage) as uri:
        output = output_of(job, uri, follow=follow)
        first = next(output, "")  # finds the job
    for part in chain((first,), output):
        echo(part, nl=False)


def info(
    job: options.Job,
    storage: options.Storage = None,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print everything known of one job, running, ended or unreachable."""
    from seamark.cli import job_page
    from seamark.operations.reading import info as job_info
    from seamark.operations.storage import storage_option

    with reading(storage) as uri:
        about = job_info(job, uri)
    if as_json:
        options.echo_json(about.to_json())
    else:
        job_page.show(about, storage_option(uri))


def explain(
    what: str = typer.Argument(
        "", metavar="APP.PY|JOB", help="A program with a job, or the name or id of a job."
    ),
    storage: options.Storage = None,
    preflight: bool = flag("With APP.PY: also ask the real servers.", "--preflight"),
    location: str | None = text(
        "DIR", 'The location of a query of format("seamark"), instead of a job.', "--location"
    ),
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print the end-to-end guarantee of a program's jobs, the weakest link and all findings.

    The program is loaded, but its job does not run: it must be declared at the top level, and run
    under `if __name__ == "__main__":`. For a job, the storage has the report of its last start.
    Exits with 2 if there is an error among the findings.
    """
    from seamark.model.findings import errors
    from seamark.operations.reading import accepted_losses, explain_job
    from seamark.operations.reading import explain as explain_app

    if bool(what) == (location is not None):
        raise typer.BadParameter("give APP.PY, a JOB, or --location DIR")
    if location is not None:
        _explain_location(location, as_json=as_json)
        return
    path = Path(what)
    is_program = path.suffix == ".py" or path.is_file()
    if preflight and not is_program:
        raise typer.BadParameter("--preflight needs a program: give APP.PY")
    if is_program:
        reports, losses = explain_app(path, preflight=preflight), []
    else:
        with reading(storage) as uri:
            reports, losses = explain_job(what, uri), [*accepted_losses(what, uri)]
    if as_json:
        shown = {name: report.to_json() for name, report in reports.items()}
        for page in () if is_program else shown.values():
            page["accepted-losses"] = [loss.to_json() for loss in losses]
        options.echo_json(shown)
    else:
        for name, report in reports.items():
            echo(f"job {name}")
            echo(str(report))
        for loss in losses:
            echo(f"not for {loss}")
    if any(errors(report.findings) for report in reports.values()):
        raise typer.Exit(MISTAKE)


def _explain_location(path: str, *, as_json: bool) -> None:
    from seamark.cli.job_page import location_lines
    from seamark.operations.locations import read_location

    report = read_location(path)
    if as_json:
        options.echo_json(report.to_json())
        return
    rows = [("query", f"{report.name} (job id {report.job_id}), {report.uri}")]
    rows.append(("guarantee", report.guarantee))
    for name, said in rows + location_lines(report):
        echo(f"{name:9}  {said}")


def checkpoints(
    job: options.Job,
    storage: options.Storage = None,
    checkpoint_id: int | None = text("N", "Show one checkpoint with its operators.", "--id"),
    as_json: bool = flag("Print JSON in Flink's fields.", "--json"),
    verbose: options.Verbose = 0,
) -> None:
    """Print the history of a job's checkpoints, newest first, whether the job runs or not."""
    from seamark.cli import checkpoint_tables
    from seamark.operations import reading as operation

    with reading(storage) as uri:
        history = operation.checkpoints(job, uri)
        losses = operation.accepted_losses(job, uri)
    if checkpoint_id is not None:
        one = operation.one_checkpoint(history, job, checkpoint_id)
        if as_json:
            options.echo_json(one.to_json(details=True))
        else:
            checkpoint_tables.show_one(one)
    elif as_json:
        options.echo_json(history.to_json())
    else:
        checkpoint_tables.show_all(history)
        for loss in losses:
            echo(f"Loss accepted: {loss}")


def dashboard(
    storage: options.Storage = None,
    port: int = typer.Option(8084, min=0, max=65535, help="Port to listen on; 0 takes a free one."),
    address: str = typer.Option(
        "127.0.0.1", help="Address to listen on; but for the loopback one with a login."
    ),
    certificate: Path | None = text(
        "FILE", "PEM file with private key and certificate chain: HTTPS."
    ),
    token_file: Path | None = text(
        "FILE", "Holds the dashboard's token; default: a new one, printed."
    ),
    login_header: str = text(
        "NAME", "Header in which a proxy with a login names its user.", default=""
    ),
    proxy: list[str] | None = text("ADDRESS", "Address or network of that proxy; may be repeated."),
    allow_run: list[str] | None = text(
        "APP.PY", "A program that the browser may start; may be repeated. Default: none."
    ),
    verbose: options.Verbose = 0,
) -> None:
    """Show the jobs of a storage in the browser, running or ended, until Ctrl-C.

    Prints the address. On 127.0.0.1 everybody on this machine may look; only holders of the token,
    behind the # of the address, can change a job. On any other address (--address) nobody may look
    without the token, or a login at a proxy.
    """
    from seamark.dashboard.server import Served, run_dashboard
    from seamark.operations.browser_programs import allowed_programs
    from seamark.operations.reading import nothing_at
    from seamark.operations.storage import storage_of

    served = Served(address, port, certificate, token_file, login_header, proxy or ())
    programs = allowed_programs(allow_run or ())
    uri = storage_of(storage)

    def announce(address: str) -> None:
        if why := nothing_at(uri):  # no refusal: the first job may start later
            echo(f"seamark: {why}", err=True)
        _announce(address)

    run_dashboard(uri, served, programs, announce)


def _announce(address: str) -> None:
    typer.echo("dashboard (Ctrl-C ends it):", err=True)
    typer.echo(address)
    if address.startswith("http://") and "//127." not in address and "//localhost" not in address:
        typer.echo(
            "Without --certificate the token crosses the network in plain text: give one, or let a "
            "proxy with TLS stand in front.",
            err=True,
        )

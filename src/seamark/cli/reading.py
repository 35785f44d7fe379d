"""`seamark list`, `info`, `explain` and `checkpoints`: the read-only verbs."""

from pathlib import Path

import typer

from seamark.cli import options
from seamark.cli.exits import MISTAKE
from seamark.cli.options import flag, text
from seamark.cli.terminal import reading
from seamark.cli.visible import echo


def list_jobs(
    storage: options.Storage = None,
    running: bool = flag("Only jobs with an answering driver.", "--running", "-r"),
    all_: bool = flag("Also finished, canceled and failed jobs.", "--all", "-a"),
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Print the running jobs of a storage, and the jobs without an answering driver.

    With --all also the ended jobs. A killed driver leaves no record of an end: its job is
    UNREACHABLE until the program is started again.
    """
    from seamark.cli import job_page
    from seamark.operations.reading import jobs
    from seamark.operations.storage import storage_option

    with reading("list", storage) as uri:
        found = jobs(uri, running=running, ended=all_)
    if as_json:
        options.echo_json([job.to_json() for job in found])
    else:
        job_page.show_all(found, uri, storage_option(uri), all_=all_)


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

    with reading("info", storage) as uri:
        found = job_info(job, uri)
    if as_json:
        options.echo_json(found.to_json())
    else:
        job_page.show(found, storage_option(uri))


def explain(
    what: str = typer.Argument(
        metavar="APP.PY|JOB", help="A program with a job, or the name or id of a job."
    ),
    storage: options.Storage = None,
    preflight: bool = flag("With APP.PY: also ask the real servers.", "--preflight"),
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
    from seamark.operations.storage import storage_of

    path = Path(what)
    is_program = path.suffix == ".py" or path.is_file()
    if preflight and not is_program:
        raise typer.BadParameter("--preflight needs a program: give APP.PY")
    uri = "" if is_program else storage_of("explain", storage)
    found = explain_app(path, preflight=preflight) if is_program else explain_job(what, uri)
    losses = [] if is_program else accepted_losses(what, uri)
    if as_json:
        shown = {name: report.to_json() for name, report in found.items()}
        for page in () if is_program else shown.values():
            page["accepted-losses"] = [loss.to_json() for loss in losses]
        options.echo_json(shown)
    else:
        for name, report in found.items():
            echo(f"job {name}")
            echo(str(report))
        for loss in losses:
            echo(f"not for {loss}")
    if any(errors(report.findings) for report in found.values()):
        raise typer.Exit(MISTAKE)


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

    with reading("checkpoints", storage) as uri:
        found = operation.checkpoints(job, uri)
    if checkpoint_id is not None:
        one = operation.one_checkpoint(found, job, checkpoint_id)
        if as_json:
            options.echo_json(one.to_json(details=True))
        else:
            checkpoint_tables.show_one(one)
    elif as_json:
        options.echo_json(found.to_json())
    else:
        checkpoint_tables.show_all(found)
        for loss in operation.accepted_losses(job, uri):
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
    verbose: options.Verbose = 0,
) -> None:
    """Show the jobs of a storage in the browser, running or ended, until Ctrl-C.

    Prints the address. On 127.0.0.1 everybody on this machine may look; only holders of the token,
    behind the # of the address, can change a job. On any other address (--address) nobody may look
    without the token, or a login at a proxy.
    """
    from seamark.dashboard.server import Served, run_dashboard
    from seamark.operations.storage import storage_of

    served = Served(address, port, certificate, token_file, login_header, proxy or ())
    run_dashboard(storage_of("dashboard", storage), served, _announce)


def _announce(address: str) -> None:
    typer.echo("dashboard (Ctrl-C ends it):", err=True)
    typer.echo(address)
    if address.startswith("http://") and "//127." not in address and "//localhost" not in address:
        typer.echo(
            "Without --certificate the token crosses the network in plain text: give one, or let a "
            "proxy with TLS stand in front.",
            err=True,
        )

"""The `tidemark` command line: names, options and help; what they do is in `operations/`.

Whatever is slow to import is imported inside the command that needs it, so that `--help` is quick.

Exit codes: 0 done; 1 an error of Tidemark's own, with a traceback; 2 a mistake that the caller can
mend (any `UserError`, or a wrong option), said in one paragraph on stderr.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tidemark.model.errors import UserError

if TYPE_CHECKING:
    from tidemark.dev.kafka import LocalKafka


class _Commands(TyperGroup):
    """The root of all commands: the one place where a `UserError` becomes a paragraph."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            typer.echo(f"tidemark: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    name="tidemark",
    cls=_Commands,
    help="State consistency for PySpark Structured Streaming.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
dev = typer.Typer(help="Real servers on this machine, for development.", no_args_is_help=True)
app.add_typer(dev, name="dev")


@app.command()
def explain(
    app_path: Annotated[
        Path, typer.Argument(metavar="APP.PY", help="A program that declares a job.")
    ],
) -> None:
    """Print the end-to-end guarantee of a program's jobs, the weakest link and the remedy.

    The program is loaded but its job is not run: it must be declared at the top level, and run
    under `if __name__ == "__main__":`.
    """
    from tidemark.operations.explain import explain as explain_app

    for name, report in explain_app(app_path).items():
        typer.echo(f"job {name}")
        typer.echo(str(report))


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    app_path: Annotated[
        Path, typer.Argument(metavar="APP.PY", help="A program that declares and runs a job.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="The program's own arguments.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "-D", metavar="KEY=VALUE", help="Set e.g. checkpoint.interval=5s; may be repeated."
        ),
    ] = None,
    restore: Annotated[
        str | None,
        typer.Option(
            "-s", "--from-savepoint", metavar="PATH", help="Start from a retained checkpoint."
        ),
    ] = None,
) -> None:
    """Run a program as `python APP.PY` does, with settings laid over its own.

    The command line wins over tidemark.toml, and that over the program; job.config() shows what
    holds. Options stand before APP.PY; what follows it is the program's.
    """
    from tidemark.operations.run import run as run_app

    run_app(app_path, arguments or [], settings or [], restore)


@app.command("list")
def list_jobs(
    storage: Annotated[
        str | None,
        typer.Option(
            help="Where the checkpoints lie; default: checkpoint.storage in tidemark.toml."
        ),
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", "-r", help="Only jobs whose driver answers.")
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="Also jobs that finished, were canceled or failed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the jobs of a storage: those that run, and those whose driver does not answer.

    With --all those too that have ended. A driver that was killed has not said that its job ended:
    the job is UNREACHABLE until its program is started again.
    """
    import json

    from tidemark.cli import job_table
    from tidemark.operations.list_jobs import jobs

    found = jobs(storage, running=running, ended=all_)
    if as_json:
        typer.echo(json.dumps([job.to_json() for job in found], indent=2))
    else:
        job_table.show(found)


@app.command()
def checkpoints(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")],
    storage: Annotated[
        str | None,
        typer.Option(
            help="Where its checkpoints lie; default: checkpoint.storage in tidemark.toml."
        ),
    ] = None,
    checkpoint_id: Annotated[
        int | None,
        typer.Option("--id", metavar="N", help="Show one checkpoint with its operators."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in Flink's fields.")] = False,
) -> None:
    """Print the history of a job's checkpoints, newest first, whether the job runs or not."""
    import json

    from tidemark.cli import checkpoint_tables
    from tidemark.operations import checkpoints as operation

    found = operation.checkpoints(job, storage)
    if checkpoint_id is not None:
        one = operation.one_checkpoint(found, job, checkpoint_id)
        if as_json:
            typer.echo(json.dumps(one.to_json(details=True), indent=2))
        else:
            checkpoint_tables.show_one(one)
    elif as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        checkpoint_tables.show_all(found)


@app.command()
def dashboard(
    storage: Annotated[
        str | None,
        typer.Option(
            help="Where the checkpoints lie; default: checkpoint.storage in tidemark.toml."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8084,
) -> None:
    """Show the jobs of a storage in the browser, running or ended, until Ctrl-C.

    Prints the address. Everybody on this machine may look; what stands behind the # of the address
    is the token without which nobody can stop a job.
    """
    from tidemark.operations.dashboard import dashboard as serve

    serve(storage, port, _announce_dashboard)


def _announce_dashboard(address: str) -> None:
    typer.echo("dashboard (Ctrl-C ends it):", err=True)
    typer.echo(address)


@dev.command("kafka")
def dev_kafka(
    brokers: Annotated[int, typer.Option(help="1, or a cluster of 3.")] = 1,
    directory: Annotated[
        Path | None,
        typer.Option(
            file_okay=False,
            help="Keep the data (and the ports) here for the next time; default: keep nothing.",
        ),
    ] = None,
) -> None:
    """Start Kafka on 127.0.0.1, print its bootstrap address, and stop it at Ctrl-C.

    The first start fetches the brokers' jars from Maven (45 MB). Only the address goes to stdout.
    """
    import logging

    from tidemark.operations.dev_kafka import run_local_kafka

    logging.basicConfig(level=logging.INFO, format="%(message)s")  # what is being fetched, to where
    run_local_kafka(brokers, directory, _announce)


def _announce(kafka: LocalKafka) -> None:
    typer.echo(f"Kafka: {kafka.brokers} broker(s), data in {kafka.directory}", err=True)
    typer.echo("bootstrap servers (Ctrl-C stops them):", err=True)
    typer.echo(kafka.bootstrap_servers)


if __name__ == "__main__":
    app()

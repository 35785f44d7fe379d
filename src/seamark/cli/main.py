"""The `seamark` command line: its verbs, in the order of `--help`.

Slow imports stand inside the commands, so `--help` and shell completion are quick. Exit codes:
`exits.py`.
"""

from typing import Annotated

import typer

from seamark.cli import (
    auditing,
    changing,
    developing,
    offsets,
    reading,
    running,
    savepoints,
    transactions,
)
from seamark.cli import verify as verification
from seamark.cli.exits import EPILOG, Commands
from seamark.model.packages import VERSION

app = typer.Typer(
    name="seamark",
    cls=Commands,
    epilog=EPILOG,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seamark {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show it, and exit."),
    ] = False,
) -> None:
    """State consistency for PySpark Structured Streaming.

    Jobs are found by their checkpoints: --storage, checkpoint.storage in seamark.toml,
    SEAMARK_STORAGE, or else ~/.seamark/checkpoints.
    """


_RUN, _LOOK, _CHANGE = "Run a job", "Look at jobs", "Change a running job"
app.command("run", rich_help_panel=_RUN, context_settings={"allow_interspersed_args": False})(
    running.run
)
app.command("explain", rich_help_panel=_RUN)(reading.explain)
app.command("list", rich_help_panel=_LOOK)(reading.list_jobs)
app.command("info", rich_help_panel=_LOOK)(reading.info)
app.command("logs", rich_help_panel=_LOOK)(reading.logs)
app.command("checkpoints", rich_help_panel=_LOOK)(reading.checkpoints)
app.command("dashboard", rich_help_panel=_LOOK)(reading.dashboard)
app.command("checkpoint", rich_help_panel=_CHANGE)(changing.checkpoint)
app.add_typer(savepoints.app, name="savepoint", rich_help_panel=_CHANGE)
app.add_typer(offsets.app, name="offsets", rich_help_panel=_CHANGE)
app.add_typer(transactions.app, name="txn", rich_help_panel="After a failure")
app.command(
    "audit",
    rich_help_panel="After a failure",
    context_settings={"allow_interspersed_args": False},
)(auditing.audit)
app.command("stop", rich_help_panel=_CHANGE)(changing.stop)
app.command("cancel", cls=changing.Cancel, rich_help_panel=_CHANGE)(changing.cancel)
app.command("verify", rich_help_panel="Develop")(verification.verify)
app.command("init", rich_help_panel="Develop")(developing.init)
app.command("demo", rich_help_panel="Develop")(developing.demo)
app.command("doctor", rich_help_panel="Develop")(developing.doctor)
app.command("class-archive", rich_help_panel="Develop")(developing.class_archive)
app.add_typer(developing.dev, name="dev", rich_help_panel="Develop")
app.add_typer(developing.topic, name="topic", rich_help_panel="Develop")

if __name__ == "__main__":
    app()

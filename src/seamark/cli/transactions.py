"""`seamark txn`: the open transactions of a job at its sinks' systems, and losses accepted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seamark.cli import options
from seamark.cli.terminal import ago, say, stdout, suggest, time_of, waiting
from seamark.cli.visible import echo

if TYPE_CHECKING:
    from seamark.operations.run import Program

app = typer.Typer(
    no_args_is_help=True,
    help="Show and end a job's open transactions at its sinks' systems; accept a loss.",
)
_STYLES = {"must commit": "yellow", "safe to abort": "green", "unknown": "red"}
_FIRST = {
    True: "; it is the oldest open one there",
    False: "; an older one is open there",
    None: "",
}
_BEFORE_THE_PROGRAM = {"allow_interspersed_args": False}


def option(metavar: str, help_: str, *names: str) -> Any:
    """Return an option with the name of its value."""
    return typer.Option(*names, metavar=metavar, show_default=False, help=help_)


App = Annotated[
    str,
    typer.Argument(
        metavar="APP.PY",
        show_default=False,
        help="The job's program: it knows the sinks. It is run up to its job.run().",
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARGS]", help="The program's own.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    option("KEY=VALUE", "Set e.g. checkpoint.storage=/mnt/c; may be repeated.", "-D"),
]
Transactions = Annotated[
    list[str] | None,
    option("NAME", "A transaction, as `list` names it; may be repeated.", "--transaction", "-t"),
]
Force = Annotated[bool, typer.Option("--force", help="Also where the job's records say otherwise.")]


def program_of(
    app_path: str, arguments: list[str] | None, settings: list[str] | None, verbose: int = 0
) -> Program:
    """Return the program to ask, with the command line's settings."""
    from seamark.operations.run import Program

    level = ("", "INFO", "DEBUG")[min(verbose, 2)]
    return Program(app_path, arguments or [], settings or [], log_level=level)


@app.command("list", context_settings=_BEFORE_THE_PROGRAM)
def list_(
    app_path: App,
    arguments: Arguments = None,
    settings: Settings = None,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """List the open transactions of a program's job, with the verdict of its records on each."""
    from seamark.operations.transactions import list_open

    with waiting(f"Asking the sinks of {app_path}"):
        found = list_open(program_of(app_path, arguments, settings, verbose))
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if not found:
        say("No transaction is open.")
        return
    _table(found)


@app.command("show", context_settings=_BEFORE_THE_PROGRAM)
def show(
    app_path: App,
    arguments: Arguments = None,
    transactions: Transactions = None,
    settings: Settings = None,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Show every known fact of open transactions, of all or of those given with -t."""
    from seamark.operations.transactions import list_open

    with waiting(f"Asking the sinks of {app_path}"):
        found = list_open(program_of(app_path, arguments, settings, verbose))
    chosen = [one for one in found if not transactions or one["transaction"] in transactions]
    if as_json:
        echo(json.dumps(chosen, indent=2))
        return
    for name in set(transactions or ()) - {one["transaction"] for one in chosen}:
        say(f"{name}: no open transaction of this job has this name.")
    for one in chosen:
        _show(one)


@app.command("commit", context_settings=_BEFORE_THE_PROGRAM)
def commit(
    app_path: App,
    arguments: Arguments = None,
    transactions: Transactions = None,
    all_lingering: Annotated[
        bool, typer.Option("--all-lingering", help="All that must be committed.")
    ] = False,
    force: Force = False,
    settings: Settings = None,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Commit open transactions whose epoch is decided, as the job's next start would."""
    from seamark.operations.transactions import commit as commit_all

    names = _names(transactions, all_lingering=all_lingering, force=force)
    with waiting(f"Committing with {app_path}"):
        done = commit_all(program_of(app_path, arguments, settings, verbose), names, force=force)
    _done("committed", done, as_json=as_json)


@app.command("abort", context_settings=_BEFORE_THE_PROGRAM)
def abort(
    app_path: App,
    arguments: Arguments = None,
    transactions: Transactions = None,
    all_lingering: Annotated[
        bool, typer.Option("--all-lingering", help="All that are safe to abort.")
    ] = False,
    force: Force = False,
    settings: Settings = None,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Abort open transactions of no decided epoch, as the job's next start would.

    Takes the job over from its older drivers first: a sleeping driver stops when it wakes.
    """
    from seamark.operations.transactions import abort as abort_all

    names = _names(transactions, all_lingering=all_lingering, force=force)
    with waiting(f"Aborting with {app_path}"):
        done = abort_all(program_of(app_path, arguments, settings, verbose), names, force=force)
    _done("aborted", done, as_json=as_json)


@app.command("accept-loss", context_settings=_BEFORE_THE_PROGRAM)
def accept_loss(
    app_path: App,
    epoch: Annotated[int, option("N", "The epoch, as LostTransactionError names it.", "--epoch")],
    sink: Annotated[str, option("UID", "The sink, as the error names it.", "--sink")],
    reason: Annotated[str, option("TEXT", "Why; it is kept for ever.", "--reason")],
    arguments: Arguments = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also if the system cannot tell any more what became of them."
        ),
    ] = False,
    settings: Settings = None,
    as_json: options.Json = False,
) -> None:
    """Accept the loss of a sink's transactions in a decided epoch, so the job can go on.

    The job must not run. Transactions not lost are committed. Nothing is accepted if all can be
    committed.
    """
    from seamark.operations.transactions import accept_loss as accept

    with waiting(f"Asking the sinks of {app_path}"):
        found = accept(program_of(app_path, arguments, settings), epoch, sink, reason, force=force)
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    count, rows = len(found["transactions"]), found["rows"]
    echo(
        f"Accepted by {found['accepted_by']} at {time_of(found['accepted_at'] / 1e3)}: {count} "
        f"transactions of epoch {epoch} at sink {sink} are lost, of {rows} rows in all."
    )
    for name in found["transactions"]:
        echo(f"  {name}")
    suggest(f"seamark run {app_path}")


def _names(transactions: list[str] | None, *, all_lingering: bool, force: bool) -> Sequence[str]:
    if bool(transactions) == all_lingering:
        raise typer.BadParameter("name transactions with -t, or give --all-lingering")
    if all_lingering and force:
        raise typer.BadParameter("--force is for transactions named with -t")
    return transactions or ()


def _done(what: str, done: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(done, indent=2))
        return
    for one in done:
        echo(f"{what}  {one['sink']}  epoch {_epoch(one)}  {one['transaction']}")
    if not done:
        say(f"Nothing to be {what}.")


def _table(found: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("sink", "epoch", "generation", "age", "times out in", "verdict", "holds up",
                  "transaction", box=None, pad_edge=False)  # fmt: skip
    for one in found:
        held = sum(place["rows"] for place in one["held-up"])
        table.add_row(
            Text(one["sink"]),
            _epoch(one),
            str(one["generation"]),
            _length(one["age"]),
            _length(one["time-left"]),
            Text(one["verdict"], _STYLES.get(one["verdict"], "")),
            f"{held} rows in {len(one['held-up'])}" if one["held-up"] else "",
            Text(one["transaction"]),
        )
    stdout().print(table)


def _show(one: dict[str, Any]) -> None:
    attempt = "" if one["attempt"] < 0 else f", attempt {one['attempt']}"
    stored = "stored" if one["stored"] else "in no stored attempt"
    since = "unknown"
    if one["since"] >= 0:
        since = f"{time_of(one['since'] / 1e3)}, {_length(one['age'])} ago"
    lines = {
        "job": one["job"],
        "sink": one["sink"],
        "verdict": one["verdict"],
        "epoch": f"{_epoch(one)} ({stored}), generation {one['generation']}{attempt}",
        "since": since,
        "times out in": _length(one["time-left"]),
    }
    echo(one["transaction"])
    for name, value in lines.items():
        echo(f"  {name:<14}{value}")
    for held in one["held-up"]:
        echo(f"  {'holds up':<14}{held['place']}: {held['rows']} rows wait{_FIRST[held['first']]}")


def _epoch(one: dict[str, Any]) -> str:
    return str(one["epoch"]) if one["epoch"] >= 0 else "?"


def _length(ms: int) -> str:
    return ago(ms / 1e3) if ms >= 0 else "unknown"

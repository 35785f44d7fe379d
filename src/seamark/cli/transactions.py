"""`seamark txn`: the open transactions of a job, or a Kafka cluster, and losses accepted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seamark.cli import options
from seamark.cli.options import flag, text
from seamark.cli.terminal import ago, print_table, say, suggest, time_of, waiting
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

_TRANSACTIONS = text(
    "NAME", "A transaction, as `list` names it; may be repeated.", "--transaction", "-t"
)


@dataclass(frozen=True)
class ProgramAsked:
    """The program whose job is meant, and the form of the answer."""

    app_path: str = typer.Argument(
        metavar="APP.PY",
        show_default=False,
        help="The job's program: it knows the sinks. It is run up to its job.run().",
    )
    arguments: options.Arguments = None
    settings: list[str] | None = text(
        "KEY=VALUE", "Set e.g. checkpoint.storage=/mnt/c; may be repeated.", "-D"
    )
    job: str | None = options.JobOfProgram
    as_json: options.Json = False
    verbose: options.Verbose = 0

    @property
    def program(self) -> "Program":
        """The program."""
        from seamark.operations.run import Program

        level = ("", "INFO", "DEBUG")[min(self.verbose, 2)]
        given = self.arguments or [], self.settings or []
        return Program(self.app_path, *given, log_level=level, job=self.job)


def _no_location(value: str | None) -> None:
    from seamark.operations.program_file import NO_PROGRAM

    if value is not None:
        raise typer.BadParameter(f"{value}: {NO_PROGRAM}")


@dataclass(frozen=True)
class ProgramAlone(ProgramAsked):
    """The program; who gives a location is told why there is no such option."""

    location: str | None = typer.Option(
        None, "--location", hidden=True, is_eager=True, callback=_no_location
    )


@dataclass(frozen=True)
class ProgramOrPlace(ProgramAsked):
    """The program, unless an option names another place."""

    app_path: str = typer.Argument(
        "", metavar="[APP.PY]", show_default=False, help="The job's program: it knows the sinks."
    )

    def check(self, location: str | None, options: Path | None, **more: Any) -> None:
        """Refuse options without an effect on this place; `more` are by name, for programs too."""
        given = {"-D": self.settings, "--job": self.job, **more}
        if not self.app_path and (idle := [name for name, value in given.items() if value]):
            raise typer.BadParameter(f"{', '.join(idle)}: to go with APP.PY alone")
        if options is not None and location is None:
            raise typer.BadParameter("--options goes with --location")


@app.command("list", context_settings=_BEFORE_THE_PROGRAM)
@options.spread
def list_(
    bootstrap_servers: str | None = text(
        "HOST:PORT,…", "Without a program: those of all jobs on this Kafka cluster, Flink's too."
    ),
    prefix: str = text("TEXT", "There: those whose transactional ids begin so.", default=""),
    command_config: Path | None = text(
        "FILE", "There: settings of the client, librdkafka's or Java's, name=value."
    ),
    location: str | None = options.Location,
    options_file: Path | None = options.OptionsFile,
    *,
    of: ProgramOrPlace,
) -> None:
    """List the open transactions of a program's job, with the verdict of its records on each.

    With --location those of a query of format("seamark"); with --bootstrap-servers those of a
    cluster, without a verdict. Nothing is changed.
    """
    from seamark.operations.transactions import list_on_cluster, list_open

    bootstrap_servers = bootstrap_servers or None
    given = (bool(of.app_path), bootstrap_servers is not None, location is not None)
    if sum(given) != 1:
        raise typer.BadParameter("give one of APP.PY, --bootstrap-servers and --location")
    if bootstrap_servers is None and (prefix or command_config):
        raise typer.BadParameter("--prefix and --command-config go with --bootstrap-servers")
    of.check(location, options_file)
    if location is not None:
        from seamark.operations.locations import open_at_sink

        with waiting(f"Asking the sink of {location}"):
            listed = open_at_sink(location, options_file)
    elif bootstrap_servers is not None:
        with waiting(f"Asking {bootstrap_servers}"):
            listed = list_on_cluster(bootstrap_servers, prefix, command_config)
    else:
        with waiting(f"Asking the sinks of {of.app_path}"):
            listed = list_open(of.program)
    if of.as_json:
        options.echo_json(listed)
    elif not listed:
        say("No transaction is open.")
    elif bootstrap_servers is None:
        _table(listed)
    else:
        for one in listed:
            producer = f"{one['producer-id']}, epoch {one['producer-epoch']}"
            lines = {"state": one["state"], "producer": producer, **_times(one)}
            lines |= {"writes to": ", ".join(one["partitions"]), "known": one["known"]}
            _show_lines(one, lines)


@app.command("show", context_settings=_BEFORE_THE_PROGRAM)
@options.spread
def show(transactions: list[str] | None = _TRANSACTIONS, *, of: ProgramAlone) -> None:
    """Show every known fact of open transactions, of all or of those given with -t."""
    from seamark.operations.transactions import list_open

    with waiting(f"Asking the sinks of {of.app_path}"):
        listed = list_open(of.program)
    chosen = [one for one in listed if not transactions or one["transaction"] in transactions]
    if of.as_json:
        options.echo_json(chosen)
        return
    for name in set(transactions or ()) - {one["transaction"] for one in chosen}:
        say(f"{name}: no open transaction of this job has this name.")
    for one in chosen:
        _show(one)


def _add_ending(verb: str, description: str) -> None:
    @app.command(verb, help=description, context_settings=_BEFORE_THE_PROGRAM)
    @options.spread
    def end(
        transactions: list[str] | None = _TRANSACTIONS,
        all_lingering: bool = flag(
            "All that the job's next start would end so.", "--all-lingering"
        ),
        force: bool = flag("Also where the job's records say otherwise.", "--force"),
        *,
        of: ProgramAlone,
    ) -> None:
        from seamark.operations import transactions as ending

        if bool(transactions) == all_lingering:
            raise typer.BadParameter("name transactions with -t, or give --all-lingering")
        if all_lingering and force:
            raise typer.BadParameter("--force is for transactions named with -t")
        with waiting(f"Asking the sinks of {of.app_path} to {verb}"):
            done = ending.end(of.program, verb, transactions or (), force=force)
        if of.as_json:
            options.echo_json(done)
            return
        what = {"commit": "committed", "abort": "aborted"}[verb]
        for one in done:
            echo(f"{what}  {one['sink']}  epoch {_epoch(one)}  {one['transaction']}")
        if not done:
            say(f"Nothing to be {what}.")


_add_ending(
    "commit", "Commit open transactions whose epoch is decided, as the job's next start would."
)
_add_ending(
    "abort",
    "Abort open transactions of no decided epoch, as the job's next start would.\n\n"
    "Takes the job over from its older drivers first: a sleeping driver stops when it wakes.",
)


@app.command("accept-loss", context_settings=_BEFORE_THE_PROGRAM)
@options.spread
def accept_loss(
    epoch: int = text("N", "The epoch, as LostTransactionError names it.", default=...),
    sink: str = text("UID", "The sink, as the error names it.", default=...),
    reason: str = text("TEXT", "Why; it is kept for ever.", default=...),
    force: bool = flag("Also if the system cannot tell any more what became of them.", "--force"),
    *,
    of: ProgramAlone,
) -> None:
    """Accept the loss of a sink's transactions in a decided epoch, so the job can go on.

    The job must not run. Transactions not lost are committed. Nothing is accepted if all can be
    committed.
    """
    from seamark.operations.transactions import accept_loss as accept

    with waiting(f"Asking the sinks of {of.app_path}"):
        loss = accept(of.program, epoch, sink, reason, force=force)
    if of.as_json:
        options.echo_json(loss)
        return
    count, rows = len(loss["transactions"]), loss["rows"]
    echo(
        f"Accepted by {loss['accepted_by']} at {time_of(loss['accepted_at'] / 1e3)}: {count} "
        f"transactions of epoch {epoch} at sink {sink} are lost, of {rows} rows in all."
    )
    for name in loss["transactions"]:
        echo(f"  {name}")
    suggest(f"seamark run {of.app_path}")


def _table(transactions: Sequence[dict[str, Any]]) -> None:
    from rich.text import Text

    columns = ("sink", "epoch", "generation", "age", "times out in", "verdict", "holds up")

    def row(one: dict[str, Any]) -> tuple[str | Text, ...]:
        held = sum(place["rows"] for place in one["held-up"])
        return (
            one["sink"],
            _epoch(one),
            str(one["generation"]),
            _length(one["age"]),
            _length(one["time-left"]),
            Text(one["verdict"], _STYLES.get(one["verdict"], "")),
            f"{held} rows in {len(one['held-up'])}" if one["held-up"] else "",
            one["transaction"],
        )

    print_table((*columns, "transaction"), map(row, transactions), box=None, pad_edge=False)


def _show(one: dict[str, Any]) -> None:
    attempt = "" if one["attempt"] < 0 else f", attempt {one['attempt']}"
    stored = "stored" if one["stored"] else "in no stored attempt"
    lines = {
        "job": one["job"],
        "sink": one["sink"],
        "verdict": one["verdict"],
        "epoch": f"{_epoch(one)} ({stored}), generation {one['generation']}{attempt}",
        **_times(one),
    }
    _show_lines(one, lines)


def _times(one: dict[str, Any]) -> dict[str, str]:
    since = "unknown"
    if one["since"] >= 0:
        since = f"{time_of(one['since'] / 1e3)}, {_length(one['age'])} ago"
    return {"since": since, "times out in": _length(one["time-left"])}


def _show_lines(one: dict[str, Any], lines: Mapping[str, str]) -> None:
    echo(one["transaction"])
    for name, value in lines.items():
        echo(f"  {name:<14}{value}")
    for held in one["held-up"]:
        echo(f"  {'holds up':<14}{held['place']}: {held['rows']} rows wait{_FIRST[held['first']]}")
        for group, rows in (held["groups"] or {}).items():
            behind = f"up to {rows} rows before it" if rows else "waits there"
            echo(f"  {'':<14}group {group}: {behind}")


def _epoch(one: dict[str, Any]) -> str:
    return str(one["epoch"]) if one["epoch"] >= 0 else "?"


def _length(ms: int) -> str:
    return ago(ms / 1e3) if ms >= 0 else "unknown"

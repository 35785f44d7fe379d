"""`seamark savepoint`: take, inspect, compare or dispose of a savepoint.

``seamark savepoint JOB [DIR]`` takes a savepoint, as in Flink: every word except this group's verbs
is the name of a job.
"""

from shlex import quote
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from seamark.cli import options
from seamark.cli.terminal import print_table, say, size, suggest, writing
from seamark.cli.visible import echo


class _Savepoints(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the verb left out in Flink's syntax."""
        if args and args[0] in ("-d", "--dispose"):
            args = ["dispose", *args[1:]]
        elif args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["take", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Savepoints,
    no_args_is_help=True,
    help="Take a savepoint of a job: `savepoint JOB [DIR]`. Show, compare or delete (`-d`) some.",
)
Path = Annotated[str, typer.Argument(metavar="PATH", help="The savepoint's directory.")]


@app.command()
@options.spread
def take(
    job: options.Job,
    directory: str | None = typer.Argument(
        None, metavar="DIR", show_default=False,
        help="Parent of the savepoint's new directory; default: the job's savepoint_dir.",
    ),
    type_: options.SavepointType = options.SavepointFormat.CANONICAL,
    *,
    how: options.Running,
) -> None:  # fmt: skip
    """Take a savepoint of a running job; the job goes on. The verb may be left out."""
    from seamark.operations.change_job import take_savepoint

    running = how.find(job)
    say(f"Triggering a savepoint of job {running.job}.")
    with writing("Waiting for the savepoint") as show:
        path = take_savepoint(running, directory, how.timeout, show, type_)
    echo(f"Savepoint completed. Path: {path}")
    suggest(f"seamark savepoint inspect {quote(path)}", f"seamark run -s {quote(path)} APP.PY")


@app.command()
def inspect(path: Path, as_json: options.Json = False, verbose: options.Verbose = 0) -> None:
    """Show the content of a savepoint: operators with uid, rows and bytes of state; sources with
    their offsets; sinks with the transactions a restore commits."""
    import json

    from seamark.savepoints.claims import open_savepoint

    savepoint = open_savepoint(path)
    operators = [
        {
            "uid": o.uid,
            "type": o.name,
            "rows": o.rows if o.rows >= 0 else None,
            "bytes": savepoint.bytes_of(o),
            "partitions": o.partitions,
        }
        for o in savepoint.operators
    ]
    sources = [{"uid": s.uid, "offset": s.offset} for s in savepoint.sources]
    sinks = [
        {
            "uid": s.uid,
            "type": s.type,
            "committables": len(savepoint.committables.get(s.uid, ())),
            "rows": s.rows,
        }
        for s in savepoint.sinks
    ]
    if as_json:
        shown = {
            "path": savepoint.uri,
            "type": savepoint.type.value,
            "drained": savepoint.drained,
            "jid": savepoint.job_id,
            "name": savepoint.job_name,
            "epoch": savepoint.epoch,
            "created": round(savepoint.created_at * 1000),
            "state-backend": savepoint.state_backend,
            "operators": operators,
            "sources": sources,
            "sinks": sinks,
        }
        options.echo_json(shown)
        return
    echo(
        f"{savepoint.type.value.capitalize()} savepoint of job {savepoint.job_name} "
        f"({savepoint.job_id}), epoch {savepoint.epoch}, state backend {savepoint.state_backend}"
        + (", drained: its windows were closed early" if savepoint.drained else "")
    )
    rows = (
        (o.uid, o.name, f"{o.rows:,}" if o.rows >= 0 else "n/a", size(savepoint.bytes_of(o)),
         str(o.partitions))
        for o in savepoint.operators
    )  # fmt: skip
    print_table(("operator", "type", "rows", "bytes", "partitions"), rows)
    print_table(("source", "offset"), ((s.uid, json.dumps(s.offset)) for s in savepoint.sources))
    columns = ("sink", "type", "transactions to commit", "their rows")
    print_table(columns, (map(str, sink.values()) for sink in sinks))


@app.command()
def diff(
    old: str = typer.Argument(metavar="A", help="A savepoint's directory."),
    new: str = typer.Argument(metavar="B", help="The directory of another savepoint."),
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Compare two savepoints: sources, operators and sinks by uid, settings."""
    import json
    from dataclasses import asdict

    from seamark.savepoints.claims import open_savepoint
    from seamark.savepoints.edit.diff import diff as compare

    differences = compare(open_savepoint(old), open_savepoint(new))
    if as_json:
        options.echo_json([asdict(one) for one in differences])
        return
    if not differences:
        echo("The savepoints hold the same.")
        return

    def shown(value: Any) -> str:
        return value if isinstance(value, str) else json.dumps(value)

    rows = ((one.part, one.uid, one.what, shown(one.old), shown(one.new)) for one in differences)
    print_table(("part", "uid", "what", "A", "B"), rows)


@app.command()
def dispose(
    path: Path,
    incomplete: bool = options.flag("Also a savepoint cut off in the middle.", "--incomplete"),
    storage: options.Storage = None,
    verbose: options.Verbose = 0,
) -> None:
    """Delete a savepoint: `savepoint -d PATH`. Jobs restored from it do not need it any more.

    Refused while the savepoint is being written, while a job in the storage is being restored from
    it, and while a job has it by a claim. Foreign files in its directory stay and are named.
    """
    from seamark.operations.storage import storage_of
    from seamark.savepoints.claims import dispose as delete

    left = delete(path, storage=storage_of(storage), incomplete=incomplete)
    echo(f"Savepoint {path} is disposed.")
    if left:
        names = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if left[5:] else "")
        say(f"Its directory stays: it has {len(left)} files that are not the savepoint's: {names}")

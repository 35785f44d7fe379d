"""`seamark offsets`: a savepoint's offsets in Kafka, and copies with other offsets.

The given savepoint is never written to.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from seamark.cli import options
from seamark.cli.exits import NOT_DONE
from seamark.cli.options import flag, text
from seamark.cli.terminal import print_table, say, suggest
from seamark.cli.visible import echo
from seamark.model.errors import DriverUnreachableError

if TYPE_CHECKING:
    from seamark.operations.offsets import Preview
    from seamark.savepoints.edit.offsets import Move, Partition

app = typer.Typer(
    no_args_is_help=True,
    help="Show the offsets of a savepoint; make a copy with other offsets.",
)


What = Annotated[
    str, typer.Argument(metavar="PATH|JOB", help="A savepoint's directory, or a job's name.")
]
_SERVERS = text("HOST:PORT,…", "Kafka's brokers, asked for their offsets.")
_CONFIG = text(
    "FILE", "Settings of the consumer for --bootstrap-servers: librdkafka's, name=value."
)


@app.command()
def show(
    what: What,
    bootstrap_servers: str | None = _SERVERS,
    command_config: Path | None = _CONFIG,
    storage: options.Storage = None,
    as_json: options.Json = False,
    verbose: options.Verbose = 0,
) -> None:
    """Show the offset of each partition; with --bootstrap-servers also the extent of its log.

    For a job: the offsets after its last decided epoch.
    """
    import json

    from seamark.operations import offsets

    base = offsets.base_of(what, storage)
    sources = base.sources
    partitions = offsets.show(base, offsets.brokers_at(bootstrap_servers, command_config))
    if as_json:
        shown = [
            {
                "uid": source.uid,
                "offset": source.offset,
                "partitions": [
                    {
                        "topic": m.topic, "partition": m.partition, "offset": m.old,
                        "log-start": m.log_start, "log-end": m.log_end, "remaining": m.remaining,
                    }
                    for m in partitions if m.source == source.uid
                ],
            }
            for source in sources
        ]  # fmt: skip
        options.echo_json(shown)
        return

    def rows() -> Iterator[tuple[str, ...]]:
        for source in sources:
            mine = [move for move in partitions if move.source == source.uid]
            for m in mine:
                log = _log(m.log_start, m.log_end), _count(m.remaining)
                yield source.uid, f"{m.topic}:{m.partition}", str(m.old), *log
            if not mine:
                yield source.uid, "", json.dumps(source.offset), "", ""

    print_table(("source", "partition", "offset", "its log holds", "to be read"), rows())


@dataclass(frozen=True)
class _How(options.Running):
    """The options of `set` and `rewind` alike."""

    to_timestamp: str | None = text(
        "TIME", "The first row at this time or later: ISO 8601 with a time zone, or ms since 1970."
    )
    to_earliest: bool = flag("The start of each log.", "--to-earliest")
    topic: list[str] | None = text("OLD=NEW", "A renamed topic; may be repeated.")
    source: str | None = text("UID", "Only this source; default: all Kafka sources.")
    to: str | None = text(
        "NEWPATH", "The copy's directory, a new one; default: beside the savepoint."
    )
    bootstrap_servers: str | None = _SERVERS
    command_config: Path | None = _CONFIG
    dry_run: bool = flag("Show the changes; write nothing.", "--dry-run")
    as_json: options.Json = False


@app.command(name="set")
@options.spread
def set_(
    what: What,
    partition: list[str] | None = text(
        "TOPIC:P=OFFSET", "The next offset to read; may be repeated."
    ),
    to_latest: bool = flag("The end of each log.", "--to-latest"),
    *,
    how: _How,
) -> None:
    """Write a copy of a savepoint with other offsets: of single partitions, or one place for all.

    A running job has a savepoint taken first. Shows the rows to be read again or skipped in each
    partition.
    """
    from seamark.operations import offsets

    partitions, position = offsets.parse_partitions(partition or ()), _position(how, to_latest)
    if not (partitions or how.topic or position is not None):
        raise typer.BadParameter(
            "say what to set: --partition, --topic, --to-timestamp, --to-earliest or --to-latest"
        )
    _change(what, partitions, position, how)


@app.command()
@options.spread
def rewind(what: What, *, how: _How) -> None:
    """Write a copy of a savepoint with earlier offsets. No row is skipped: a partition already
    before the given place stays there.

    A running job has a savepoint taken first. Shows the rows to be read again in each partition.
    """
    position = _position(how)
    if position is None:
        raise typer.BadParameter("say how far: --to-timestamp or --to-earliest")
    _change(what, {}, position, how, only_back=True)


def _position(how: _How, to_latest: bool = False) -> str | int | None:
    from seamark.operations.offsets import EARLIEST, LATEST, parse_moment

    if (how.to_timestamp is not None) + how.to_earliest + to_latest > 1:
        raise typer.BadParameter("--to-timestamp, --to-earliest and --to-latest exclude each other")
    if how.to_timestamp is not None:
        return parse_moment(how.to_timestamp)
    return EARLIEST if how.to_earliest else LATEST if to_latest else None


def _change(
    what: str,
    partitions: "Mapping[Partition, int]",
    position: str | int | None,
    how: _How,
    *,
    only_back: bool = False,
) -> None:
    from seamark.operations import offsets
    from seamark.savepoints.claims import open_savepoint
    from seamark.savepoints.edit.offsets import Change

    topics = offsets.parse_topics(how.topic or ())
    change = Change(partitions, topics, only_back=only_back)
    brokers = offsets.brokers_at(how.bootstrap_servers, how.command_config)
    if brokers is None:
        raise typer.BadParameter(
            "--bootstrap-servers is missing; a savepoint does not hold the brokers' addresses, and "
            "only they know which offsets there are"
        )
    path = what
    preview = partial(
        offsets.preview, change=change, position=position, source=how.source, brokers=brokers
    )
    shown = preview(offsets.base_of(what, how.storage))
    if not (how.dry_run or shown.problems or offsets.names_savepoint(what)):
        path = _savepoint_of(what, how)
        shown = preview(offsets.base_of(path, how.storage))
    copy = None
    if not how.dry_run and not shown.problems:
        copy = offsets.write(open_savepoint(path), shown, how.to)
    if how.as_json:
        options.echo_json({"base": path, "copy": copy and copy.uri, **shown.to_json()})
    else:
        _print(shown)
    for problem in shown.problems:
        say(f"Refused: {problem}.")
    if shown.problems:
        raise typer.Exit(NOT_DONE if how.dry_run else 2)
    if copy is not None:
        if not how.as_json:
            echo(f"Savepoint {path} stays as it is. Copy: {copy.uri}")
        suggest(f"seamark run -s {quote(copy.uri)} APP.PY")


def _print(shown: "Preview") -> None:
    rows = (
        (move.source, f"{move.topic}:{move.partition}", _count(move.old), _count(move.new),
         _what_happens(move), _log(move.log_start, move.log_end))
        for move in shown.moves
    )  # fmt: skip
    print_table(("source", "partition", "now", "new", "", "its log holds"), rows)
    for sentence in shown.consequences:
        echo(sentence)


def _savepoint_of(job: str, how: _How) -> str:
    """Take a savepoint of a running job, or make one of the newest checkpoint; return its path."""
    from seamark.cli.terminal import waiting
    from seamark.files.location import storage_uri
    from seamark.operations.change_job import take_savepoint
    from seamark.operations.offsets import savepoint_of_newest

    to = how.to
    running = None
    with suppress(DriverUnreachableError):  # the job has ended, or was killed
        running = how.find(job)
    if running is None:
        if to is None:
            raise typer.BadParameter(
                f"no driver runs job {job}: say where the copy is put, with --to"
            )
        say(f"Writing a savepoint of the newest checkpoint of job {job}, whose driver is gone.")
        with waiting("Starting Spark"):
            path = savepoint_of_newest(job, how.storage, to).uri
    else:
        say(f"Triggering a savepoint of job {running.job}.")
        directory = None if to is None else storage_uri(to, "--to").rpartition("/")[0]
        with waiting("Waiting for the savepoint") as tick:
            path = take_savepoint(running, directory, how.timeout, lambda *_: tick(""), "canonical")
    say(f"Savepoint completed. Path: {path}")
    return path


def _what_happens(move: "Move") -> str:
    if move.new is None:
        return "no longer read"
    if move.renamed_from is not None:
        return f"in the place of {move.renamed_from}"
    if move.old is None:
        return f"new; skips {move.skipped:,}" if move.skipped else "new"
    if move.reread:
        return f"re-reads {move.reread:,}"
    return f"skips {move.skipped:,}" if move.skipped else "stays"


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _log(start: int | None, end: int | None) -> str:
    return "" if start is None or end is None else f"{start:,} to {end:,}"

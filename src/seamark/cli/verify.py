"""`seamark verify`."""

import os
import signal
from pathlib import Path

import typer

from seamark.cli.exits import BROKEN
from seamark.cli.options import Arguments, flag, text
from seamark.cli.terminal import say, suggest
from seamark.cli.visible import echo
from seamark.model.errors import UserError


def verify(
    app: Path | None = text(
        "APP.PY", "Your own program; docs/operations/verify.md says what it must do."
    ),
    arguments: Arguments = None,
    workload: str | None = text(
        "NAME", "Or a job brought along: kafka-to-kafka, kafka-to-kafka+postgres, windows.",
        shown="kafka-to-kafka",
    ),
    faults: str | None = text(
        "LIST",
        "Some of driver,executor,python-worker,broker,database,connection,pause,disk-full,clock.",
        shown="all that can be had",
    ),
    minutes: float = typer.Option(3.0, help="How long faults go on."),
    seed: int | None = typer.Option(
        None, show_default="a new one", help="Repeats a plan of faults."
    ),
    brokers: int = typer.Option(
        1, metavar="1|3", help="Kafka brokers; one at a time is killed."
    ),
    stop_at_first: bool = flag("The first anomaly or failure ends the run.", "--stop-at-first"),
    report: Path = typer.Option(
        "seamark-verify.html", metavar="FILE", dir_okay=False, writable=True,
        help="The report, as HTML."
    ),
    id_: str = text(
        "NAME", "With --app: the column or field of the number.", "--id", default="id", shown=True
    ),
    row: str | None = text(
        "JSON", "With --app: an input row; {n} is its number, {k} its key's, {ms} its event time.",
        shown='{"<id>": {n}}',
    ),
    unordered: bool = flag("With --app: the order of a key may change.", "--unordered"),
    kafka: str | None = text(
        "HOST:PORT",
        "With --app: the program's Kafka, for tests alone: rows are written to its topics. "
        "Default: one is started, at $SEAMARK_VERIFY_KAFKA.",
    ),
    postgres: str | None = text(
        "URL", "With --app: the same for PostgreSQL, and $SEAMARK_VERIFY_POSTGRES."
    ),
) -> None:  # fmt: skip
    """Kill a job's parts, again and again, and ask its readers for every row.

    Starts real systems, feeds numbered rows, and does harm by a plan of the seed. Readers beside
    the job look for rows lost, duplicated, shown too early, reordered or torn. Exit code 1: an
    anomaly was found.
    """
    from seamark.operations.verify import Verification
    from seamark.operations.verify import verify as run
    from seamark.operations.verify_app import AppUnderTest
    from seamark.verify.report import page

    if app is not None and workload is not None:
        raise typer.BadParameter("--app and --workload exclude each other")
    if kafka is not None and brokers != 1:
        raise typer.BadParameter("--brokers counts those started here, and --kafka names others")
    under_test = None
    if app is not None:
        under_test = AppUnderTest(
            app, tuple(arguments or []), id_, row, not unordered, kafka, postgres
        )
    elif arguments or kafka or postgres or row or unordered:
        raise typer.BadParameter("ARGS, --kafka, --postgres, --row and --unordered go with --app")
    if not os.access(report.parent, os.W_OK):  # now: it is written in the end
        raise UserError(f"--report {report}: give a file in a directory that you may write into")
    # As Ctrl-C it ends what was started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked = Verification(workload, under_test, faults, minutes, seed, brokers, stop_at_first)
    outcome, directory = run(asked, say)
    report.write_text(page(outcome), encoding="utf-8")
    say(f"report  {report}")
    if not outcome.good:
        say(f"logs    {directory}")
        suggest(outcome.command)
    echo(outcome.verdict())
    if not outcome.good:
        raise typer.Exit(BROKEN)

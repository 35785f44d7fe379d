"""`seamark verify`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from seamark.cli.exits import BROKEN
from seamark.cli.options import text
from seamark.cli.terminal import say, suggest
from seamark.cli.visible import echo

_App = Annotated[
    Path | None,
    text("APP.PY", "Your own program; docs/operations/verify.md says what it must do.", "--app"),
]
_JOBS = "Or a job brought along: kafka-to-kafka, kafka-to-kafka+postgres, windows."
_Workload = Annotated[str | None, text("NAME", _JOBS, shown="kafka-to-kafka")]
_FAULTS = "Some of driver,executor,python-worker,broker,database,connection,pause,disk-full,clock."
_Faults = Annotated[str | None, text("LIST", _FAULTS, shown="all that can be had")]
_Id = Annotated[
    str, text("NAME", "With --app: the column or field of the number.", "--id", shown=True)
]
_ROW = "With --app: an input row; {n} is its number, {k} its key's, {ms} its event time."
_Row = Annotated[str | None, text("JSON", _ROW, shown='{"<id>": {n}}')]
_Kafka = Annotated[
    str | None,
    text(
        "HOST:PORT",
        "With --app: the program's Kafka, for tests alone: rows are written to its topics. "
        "Default: one is started, at $SEAMARK_VERIFY_KAFKA.",
    ),
]
_Postgres = Annotated[
    str | None, text("URL", "With --app: the same for PostgreSQL, and $SEAMARK_VERIFY_POSTGRES.")
]


def verify(
    app: _App = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="The program's own arguments.")
    ] = None,
    workload: _Workload = None,
    faults: _Faults = None,
    minutes: Annotated[float, typer.Option(help="How long faults go on.")] = 3.0,
    seed: Annotated[
        int | None, typer.Option(show_default="a new one", help="Repeats a plan of faults.")
    ] = None,
    brokers: Annotated[
        int, typer.Option(metavar="1|3", help="Kafka brokers; one at a time is killed.")
    ] = 1,
    stop_at_first: Annotated[
        bool, typer.Option("--stop-at-first", help="The first anomaly or failure ends the run.")
    ] = False,
    report: Annotated[
        Path, typer.Option(metavar="FILE", dir_okay=False, help="The report, as HTML.")
    ] = Path("seamark-verify.html"),
    id_: _Id = "id",
    row: _Row = None,
    unordered: Annotated[
        bool, typer.Option("--unordered", help="With --app: the order of a key may change.")
    ] = False,
    kafka: _Kafka = None,
    postgres: _Postgres = None,
) -> None:
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

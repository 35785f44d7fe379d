"""`seamark audit`: what is wrong at a job's targets."""

from pathlib import Path
from typing import Any

import typer

from seamark.cli import options
from seamark.cli.exits import BROKEN, NOT_DONE
from seamark.cli.options import flag, text
from seamark.cli.terminal import say, waiting
from seamark.cli.transactions import ProgramOrPlace
from seamark.cli.visible import echo


@options.spread
def audit(
    epochs: str = text(
        "A..B", "These epochs alone; all that the ledger has if left out.", default=""
    ),
    sinks: list[str] | None = text("SINK", "A sink's uid; may be repeated.", "--sink"),
    epoch_columns: list[str] | None = text(
        "SINK=COLUMN", "A column of the sink's table with each row's epoch; may be repeated.",
        "--epoch-column",
    ),
    shared: bool = flag("Others write there too: their rows are no fault.", "--shared"),
    location: str | None = options.Location,
    options_file: Path | None = options.OptionsFile,
    *,
    of: ProgramOrPlace,
) -> None:  # fmt: skip
    """Read a program's targets back, and name rows that are missing, doubled, changed or foreign.

    Compares them with the job's ledger; with --location that of a query of format("seamark") with
    the query's log. Exit code 1 if something is wrong, 4 if no sink could be compared.
    """
    from seamark.operations.audit import audit as audit_program

    if bool(of.app_path) == (location is not None):
        raise typer.BadParameter("give APP.PY, or --location DIR")
    of.check(location, options_file, **{"--sink": sinks})
    asked: dict[str, Any] = {
        "epochs": epochs,
        "epoch_columns": epoch_columns or (),
        "shared": shared,
    }
    with waiting(f"Reading the targets of {location or of.app_path}"):
        if location is None:
            report = audit_program(of.program, sinks=sinks or (), **asked)
        else:
            from seamark.operations.locations import audit_location

            report = audit_location(location, options_file, **asked)
    if of.as_json:
        options.echo_json(report)
    else:
        _show(report)
    if report["findings"]:
        raise typer.Exit(BROKEN)
    if not _compared(report):
        raise typer.Exit(NOT_DONE)


def _compared(report: dict[str, Any]) -> bool:
    return any(sink["compared"] != "not compared" for sink in report["sinks"])


def _show(report: dict[str, Any]) -> None:
    first, last = report["epochs"]
    say(f"Job {report['job']}, epochs {first} to {last}")
    for sink in report["sinks"]:
        echo(f"{sink['sink']}: {sink['description']}")
        if sink["compared"] != "not compared":
            echo(
                f"  compared {sink['compared']}: {sink['expected-rows']} rows expected, "
                f"{sink['found-rows']} found"
            )
        for finding in sink["findings"]:
            echo(f"  {finding['text']}")
        for note in sink["notes"]:
            echo(f"  note: {note}")
    if not _compared(report):
        say("No sink was compared.")
    elif not report["findings"]:
        say("Nothing is wrong as far as it was compared.")

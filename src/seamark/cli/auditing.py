"""`seamark audit`: what is wrong at a job's targets."""

from typing import Any

import typer

from seamark.cli import options
from seamark.cli.exits import BROKEN
from seamark.cli.options import flag, text
from seamark.cli.terminal import say, waiting
from seamark.cli.transactions import ProgramAsked
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
    *,
    of: ProgramAsked,
) -> None:  # fmt: skip
    """Read a program's targets back, and name rows that are missing, doubled, changed or foreign.

    Compares them with the job's ledger. Exit code 1 if something is wrong.
    """
    from seamark.operations.audit import audit as audit_program

    with waiting(f"Reading the targets of {of.app_path}"):
        found = audit_program(
            of.program,
            epochs=epochs,
            sinks=sinks or (),
            epoch_columns=epoch_columns or (),
            shared=shared,
        )
    if of.as_json:
        options.echo_json(found)
    else:
        _show(found)
    if found["findings"]:
        raise typer.Exit(BROKEN)


def _show(found: dict[str, Any]) -> None:
    first, last = found["epochs"]
    say(f"Job {found['job']}, epochs {first} to {last}")
    for sink in found["sinks"]:
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
    if not found["findings"]:
        say("Nothing is wrong as far as it was compared.")

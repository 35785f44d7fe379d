"""A job is killed with -9 on its way, and its output counted at the end."""

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from seamark.demo.workload import Workload, embedded, kafka
from seamark.model.errors import OperationFailedError
from seamark.operations.new_project import make_empty
from seamark.verify.driver import DriverProcess

POLL_S = 0.3
STALL_S = 300
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's options for drivers that are killed within a minute: its optimising compiler would take
more than it gives."""
console = Console()


def demo(
    directory: Path | None, epochs: int, rows_per_epoch: int, kills: int, *, with_kafka: bool
) -> bool:
    """Run the demo in a new directory; return whether nothing was lost or doubled.

    Raises UserError for a directory in use, OperationFailedError if the demo could not show it.
    """
    at = Path(directory or tempfile.mkdtemp(prefix="seamark-demo-")).absolute()
    make_empty(at)
    console.print(f"[bold]Seamark demo[/bold] in {at}: preparing the input …")
    workload = (kafka if with_kafka else embedded)(at, epochs, rows_per_epoch)
    try:
        _run(workload, at, kills)
        return report(workload, at, kills)
    finally:
        workload.close()


def _run(workload: Workload, directory: Path, kills: int) -> None:
    """Run the job until it ends by itself, killing it `kills` times before."""
    total = workload.expected.total()
    chance = random.Random(7)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    more = (TextColumn("rows visible"), TimeElapsedColumn())
    with Progress(*columns, *more, console=console) as progress:
        bars = {name: progress.add_task(name, total=total) for name in workload.outputs}

        def visible() -> int:
            counts = {name: read().total() for name, read in workload.outputs.items()}
            for name, count in counts.items():
                progress.update(bars[name], completed=count)
            return min(counts.values())

        for attempt in range(kills + 1):
            log = directory / f"driver-{attempt + 1}.log"
            progress.console.print(
                f"driver {attempt + 1} starts; its log is {log}", highlight=False
            )
            environment = {"JAVA_TOOL_OPTIONS": SHORT_LIVED, **os.environ, **workload.environment}
            driver = DriverProcess(
                [sys.executable, str(workload.program)], log, environment=environment
            )
            try:
                target = total * (attempt + 1) // (kills + 1) if attempt < kills else None
                _wait(driver, visible, target)
                if target is not None:
                    # Not right after a commit, but anywhere in an epoch.
                    time.sleep(chance.uniform(0, 0.5))
                    if driver.returncode is not None:
                        raise OperationFailedError(
                            "the job ended before it was to be killed; add --epochs"
                        )
                    count = len(driver.tree())
                    driver.kill_tree()
                    progress.console.print(
                        f"[red]kill -9[/red] of driver {attempt + 1}: {count} processes, "
                        f"{visible():,} of {total:,} rows visible",
                        highlight=False,
                    )
            finally:
                with suppress(ProcessLookupError):
                    driver.kill_tree()
        visible()


def _wait(driver: DriverProcess, visible: Callable[[], int], target: int | None) -> None:
    """Return when `target` rows are visible; with None, when the driver has ended well."""
    last, changed = -1, time.monotonic()
    while True:
        count, code = visible(), driver.returncode
        if code is None and target is not None and count >= target:
            return
        if code == 0 and target is None:
            return
        if code is not None:
            why = "before it was to be killed" if code == 0 else f"with exit code {code}"
            raise OperationFailedError(f"the driver ended {why}; {driver.tail(25)}")
        if count != last:
            last, changed = count, time.monotonic()
        if time.monotonic() - changed > STALL_S:
            raise OperationFailedError(f"no new row visible for {STALL_S} s; see {driver.log}")
        time.sleep(POLL_S)


def report(workload: Workload, directory: Path, kills: int) -> bool:
    """Show per sink what is expected, visible, lost and duplicated; return whether all is well."""
    table = Table(title=f"after {kills} times kill -9", title_justify="left")
    table.add_column("sink")
    for name in ("rows expected", "visible", "lost", "duplicated", "clicks counted"):
        table.add_column(name, justify="right")
    wrong = 0
    for name, read in workload.outputs.items():
        visible = read()
        lost = (workload.expected - visible).total()  # a wrong count is one of each
        duplicated = (visible - workload.expected).total()
        wrong += lost + duplicated
        figures = (workload.expected.total(), visible.total(), lost, duplicated)
        counted = sum(clicks * rows for (_, _, clicks), rows in visible.items())
        style = "red" if lost or duplicated else "green"
        table.add_row(name, *(f"{n:,}" for n in (*figures, counted)), style=style)
    console.print(table)
    console.print(
        f"{workload.clicks:,} clicks went in; the windows that the end of the input leaves open "
        "are in the checkpoint.",
        highlight=False,
    )
    at = directory / "checkpoints" / workload.job
    console.print(f"checkpoint: {at}", highlight=False, soft_wrap=True)
    return not wrong

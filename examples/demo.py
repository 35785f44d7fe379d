"""Exactly-once, shown: a job is killed with -9 twice on its way, and its output counted at the end.

``python -m examples.demo [--kafka] [--directory DIR]``. Starts `clicks_embedded.py` (or, with
--kafka, `clicks_kafka.py` on a broker of its own) as a program of its own, kills its whole process
tree in the middle of its work, starts it again, and compares what readers see of each sink with
what `workload.py` has computed from the input alone. Exit code: 0 if nothing is lost or duplicated,
1 if something is, 2 if the demo could not run.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.workload import Count, Workload, embedded, kafka

POLL_S = 0.1
STALL_S = 300
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's options for drivers that are killed within a minute: its optimising compiler would take
more than it gives."""
console = Console()


class DemoError(Exception):
    """The demo could not show what it is to show; says why."""


def main() -> int:
    """Run the demo; returns the exit code."""
    settings = arguments()
    given = settings.directory
    directory = Path(given or tempfile.mkdtemp(prefix="seamark-demo-")).absolute()
    if given and directory.exists() and any(directory.iterdir()):
        console.print(
            f"{directory} is not empty: name another directory, or remove it", style="red"
        )
        return 2
    directory.mkdir(parents=True, exist_ok=True)
    console.print(f"[bold]Seamark demo[/bold] in {directory}: preparing the input …")
    make = kafka if settings.kafka else embedded
    workload = make(directory, settings.epochs, settings.rows_per_epoch)
    try:
        run(workload, directory, settings.kills)
        return report(workload, directory, settings.kills)
    except DemoError as error:
        console.print(str(error), style="red", markup=False)
        return 2
    finally:
        workload.close()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo")
    parser.add_argument("--kafka", action="store_true", help="from Kafka to Kafka")
    parser.add_argument("--directory", help="an empty or new one; default: a temporary one")
    parser.add_argument("--epochs", type=int, default=12, help="default: 12")
    parser.add_argument(
        "--rows-per-epoch", type=int, default=10_000, help="of each source; at least 20"
    )
    parser.add_argument("--kills", type=int, default=2, help="how often to kill (default: 2)")
    settings = parser.parse_args()
    if settings.epochs < 4 or settings.rows_per_epoch < 20 or settings.kills < 0:
        parser.error("at least 4 epochs, 20 rows per epoch and 0 kills")
    return settings


def run(workload: Workload, directory: Path, kills: int) -> None:
    """Run the job until it ends by itself, killing it `kills` times before."""
    total = sum(workload.expected.values())
    chance = random.Random(7)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows visible"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        bars = {o.name: progress.add_task(o.name, total=total) for o in workload.outputs}

        def visible() -> int:
            found = {output.name: output.visible() for output in workload.outputs}
            for name, count in found.items():
                progress.update(bars[name], completed=count)
            return min(found.values())

        for attempt in range(kills + 1):
            log = directory / f"driver-{attempt + 1}.log"
            progress.console.print(
                f"driver {attempt + 1} starts; its log is {log}", highlight=False
            )
            driver = start(workload, log)
            try:
                target = total * (attempt + 1) // (kills + 1) if attempt < kills else None
                wait(driver, log, visible, target)
                if target is not None:
                    # Not right after a commit, but anywhere in an epoch.
                    time.sleep(chance.uniform(0, 0.5))
                    if driver.poll() is not None:
                        raise DemoError("the job ended before it was to be killed; add --epochs")
                    count = kill_tree(driver.pid)
                    progress.console.print(
                        f"[red]kill -9[/red] of driver {attempt + 1}: {count} processes, "
                        f"{visible():,} of {total:,} rows visible",
                        highlight=False,
                    )
            finally:
                if driver.poll() is None:  # else the id may be another process's by now
                    kill_tree(driver.pid)
                    driver.wait()
        visible()


def start(workload: Workload, log: Path) -> subprocess.Popen[bytes]:
    """Start the job's program as a user would."""
    environment = {"JAVA_TOOL_OPTIONS": SHORT_LIVED, **os.environ, **workload.environment}
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, str(workload.program)],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def wait(
    driver: subprocess.Popen[bytes], log: Path, visible: Callable[[], int], target: int | None
) -> None:
    """Return when `target` rows are visible; with None, when the driver has ended well."""
    last, changed = -1, time.monotonic()
    while True:
        count = visible()
        code = driver.poll()
        if target is not None and count >= target and code is None:
            return
        if code == 0 and target is None:
            return
        if code is not None:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
            why = "before it was to be killed" if code == 0 else f"with exit code {code}"
            raise DemoError(f"the driver ended {why}; the end of {log} is\n{tail}")
        if count != last:
            last, changed = count, time.monotonic()
        if time.monotonic() - changed > STALL_S:
            raise DemoError(f"no new row became visible for {STALL_S} s; see {log}")
        time.sleep(POLL_S)


def kill_tree(root: int) -> int:
    """Kill a driver with its JVM and its Python workers, as if the machine died.

    Spark's Python workers have process groups of their own and would outlive a kill of the
    driver's group, so the tree is walked: stopped first, that nothing is born meanwhile.
    """
    stopped: set[int] = set()
    while born := {root, *descendants(root)} - stopped:
        for pid in born:
            send(pid, signal.SIGSTOP)
        stopped |= born
    alive = [pid for pid in stopped if Path(f"/proc/{pid}").exists()]
    for pid in alive:
        send(pid, signal.SIGKILL)
    return len(alive)


def descendants(root: int) -> set[int]:
    """Return the process ids of all children, children's children and so on."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                # "pid (name) state parent …", where the name may hold anything.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    queue = [root]
    while queue:
        new = children.get(queue.pop(), [])
        found.update(new)
        queue.extend(new)
    return found


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def report(workload: Workload, directory: Path, kills: int) -> int:
    """Show per sink what is expected, visible, lost and duplicated; return the exit code."""
    table = Table(title=f"after {kills} times kill -9", title_justify="left")
    table.add_column("sink")
    for name in ("rows expected", "visible", "lost", "duplicated", "clicks counted"):
        table.add_column(name, justify="right")
    wrong = 0
    for output in workload.outputs:
        found = output.read()
        lost, duplicated = difference(workload.expected, found)
        wrong += lost + duplicated
        style = "red" if lost or duplicated else "green"
        figures = (sum(workload.expected.values()), sum(found.values()), lost, duplicated)
        counted = sum(clicks * rows for (_, _, clicks), rows in found.items())
        table.add_row(output.name, *(f"{n:,}" for n in (*figures, counted)), style=style)
    console.print(table)
    console.print(
        f"{workload.clicks:,} clicks went in; the windows that the end of the input leaves open "
        "are in the checkpoint.",
        highlight=False,
    )
    console.print(
        f"checkpoint: {directory / 'checkpoints' / workload.job}", highlight=False, soft_wrap=True
    )
    return 1 if wrong else 0


def difference(expected: Counter[Count], found: Counter[Count]) -> tuple[int, int]:
    """Return how many rows are missing, and how many are too many. A wrong count is one of each."""
    return sum((expected - found).values()), sum((found - expected).values())


if __name__ == "__main__":
    sys.exit(main())

"""The terminal of the commands: results go to stdout, everything about them to stderr.

A pipe gets plain lines: no colours, no spinner, and tables in their full width.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from seamark.cli.visible import visible

_UNLIMITED = 1000


class _Terminal(Console):
    """Shows texts as they are, whatever stands in them: no markup, no escape sequence."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def stdout() -> Console:
    """Return the console for results."""
    return _console(stderr=False)


def stderr() -> Console:
    """Return the console for everything else."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = _Terminal(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _UNLIMITED
    return console


def say(text: str) -> None:
    """Print a line on stderr about work begun or done."""
    stderr().print(Text(text), soft_wrap=True)


def suggest(*commands: str) -> None:
    """Name the likely next commands, on stderr."""
    for number, command in enumerate(commands):
        stderr().print(Text("Next:  " if not number else "       ") + Text(command, "bold"),
                       soft_wrap=True)  # fmt: skip


def print_table(
    columns: Sequence[str], rows: Iterable[Iterable[RenderableType]], **form: Any
) -> None:
    """Print a table on stdout; `form` goes to `Table`."""
    table = Table(*columns, **form)
    for row in rows:
        table.add_row(*row)
    stdout().print(table)


@contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Show a wait: a spinner with the seconds on a terminal, else nothing.

    Yields a function to be called now and then, with the known progress or "".
    """
    console = stderr()
    if not console.is_terminal:
        yield lambda progress: None
        return
    begun = time.monotonic()
    with console.status(Text(text)) as status:

        def tick(progress: str) -> None:
            line = Text(f"{text} · {time.monotonic() - begun:.0f} s")
            line.append(f" · {progress}" if progress else "", "dim")
            line.truncate(max(console.width - 4, 20), overflow="ellipsis")
            status.update(line)

        yield tick


@contextmanager
def writing(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show the bytes written: a bar on a terminal, else nothing.

    Yields a function to be called now and then with the bytes written and expected (or None).
    """
    console = stderr()
    if not console.is_terminal:
        yield lambda written, expected: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    text_column = TextColumn("{task.description}")
    columns = (text_column, BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(text, total=None)
        yield lambda written, expected: shown.update(task, completed=written, total=expected)


@contextmanager
def reading(storage: str | None) -> Iterator[str]:
    """Yield the URI of a command's storage, given by --storage or not. Shows a wait while it is
    read through Spark; nothing for a local one. Raises OperationFailedError if it cannot be read.
    """
    from seamark.operations.storage import readable, storage_of

    uri = storage_of(storage)
    is_local = uri.startswith("file:")
    with readable(uri), nullcontext() if is_local else waiting(f"Reading {uri} through Spark"):
        yield uri


def time_of(seconds: float) -> str:
    """Format seconds since 1970 as a time in this machine's time zone."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def ago(seconds: float) -> str:
    """Format a length of time in its two largest units."""
    whole = max(round(seconds), 0)
    for unit, size, part, small in (
        ("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1),
    ):  # fmt: skip
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small} {part}"
    return f"{whole} s"


def ms(value: float) -> str:
    """Format milliseconds; n/a if unknown."""
    if not value >= 0:  # not known, or the percentile of nothing
        return "n/a"
    return f"{value:.0f} ms" if value < 10_000 else f"{value / 1e3:.1f} s"


def size(value: float) -> str:
    """Format bytes; n/a if unknown."""
    if not value >= 0:
        return "n/a"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"

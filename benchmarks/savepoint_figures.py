"""The figures of `benchmarks.savepoint`, as a table and as a plot."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from benchmarks.checkpoint import shown_size

BACKENDS = ("hashmap", "rocksdb")
CANONICAL = "canonical"


@dataclass
class Cell:
    """One size, backend and type of savepoint; a figure for each savepoint that was taken."""

    size_bytes: int
    backend: str
    type: str
    state_bytes: int = 0
    disk_bytes: int = 0
    write_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    kernel_copy_s: list[float] = field(default_factory=list)
    hadoop_copy_s: list[float] = field(default_factory=list)
    restore_s: list[float] = field(default_factory=list)
    alone_ms: list[int] = field(default_factory=list)
    during_ms: list[int] = field(default_factory=list)
    written_ms: list[int] = field(default_factory=list)
    """Durations of the epochs without and during a take, and of the latter while it is written."""
    first_write_s: float = 0.0
    first_cpu_s: float = 0.0
    """Of the take that is not counted."""

    @property
    def write_median_s(self) -> float:
        return statistics.median(self.write_s)

    def times_copy(self, copy_s: Sequence[float]) -> str:
        """Return the median of each take's time by that of its copy; nothing of canonical ones,
        which write other files."""
        if self.type == CANONICAL:
            return ""
        return f"{statistics.median(w / c for w, c in zip(self.write_s, copy_s, strict=True)):.2f}"

    def times_alone(self, epochs_ms: Sequence[int]) -> float | None:
        """How much longer epochs were than those without a take; None if there was none."""
        if not epochs_ms or not self.alone_ms:
            return None
        return statistics.median(epochs_ms) / statistics.median(self.alone_ms)

    def rate(self, took_s: float) -> str:
        """Return MB of state a second, if that is not lost in what else was done."""
        return f"{self.state_bytes / 1e6 / took_s:.0f}" if took_s > 0.01 else "?"


def table(cells: Sequence[Cell], title: str) -> Table:
    found = Table(title=title)
    columns = ("state", "backend", "type", "on disk", "write s", "MB/s", "MB/s a core",
               "÷ Hadoop copy", "÷ kernel copy", "restore s",
               "alone ms", "during", "÷ alone", "writ- ten", "÷ alone")  # fmt: skip
    for number, column in enumerate(columns):
        found.add_column(column, justify="left" if number < 3 else "right")
    for cell in cells:
        found.add_row(
            shown_size(cell.size_bytes),
            cell.backend,
            cell.type,
            shown_size(cell.disk_bytes),
            f"{cell.write_median_s:.3f}",
            cell.rate(cell.write_median_s),
            cell.rate(statistics.mean(cell.cpu_s)),
            cell.times_copy(cell.hadoop_copy_s),
            cell.times_copy(cell.kernel_copy_s),
            f"{statistics.median(cell.restore_s):.2f}",
            _epochs(cell.alone_ms),
            _epochs(cell.during_ms),
            _ratio(cell.times_alone(cell.during_ms)),
            _epochs(cell.written_ms),
            _ratio(cell.times_alone(cell.written_ms)),
        )
    return found


def _epochs(durations_ms: Sequence[int]) -> str:
    """Return the median, and of how many epochs it is."""
    if not durations_ms:
        return "none"
    return f"{statistics.median(durations_ms):.0f} ({len(durations_ms)})"


def _ratio(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.2f}"


def first_takes(cells: Sequence[Cell]) -> str:
    """Return what the first take of each type, size and backend has cost, a line for each."""
    return "\n".join(
        f"first {cell.type} take of {shown_size(cell.size_bytes)} in {cell.backend}: "
        f"{cell.first_write_s:.2f} s, {cell.first_cpu_s:.2f} s of CPU, "
        f"{cell.rate(cell.first_cpu_s)} MB/s a core"
        for cell in cells
    )


def plot(cells: Sequence[Cell], path: Path) -> None:
    """Draw the seconds of takes and restores by size, and the epochs during a take."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    sizes = sorted({c.size_bytes for c in cells})
    lines = sorted({(c.backend, c.type) for c in cells})
    panels: tuple[tuple[str, Callable[[Cell], float]], ...] = (
        ("take: seconds to write", lambda c: c.write_median_s),
        ("restore: seconds", lambda c: statistics.median(c.restore_s)),
        (
            "epochs during a take ÷ without",
            lambda c: c.times_alone(c.during_ms) or float("nan"),
        ),
    )
    for axis, (title, figure_of) in zip(axes, panels, strict=True):
        for backend, type_ in lines:
            own = [c for c in cells if (c.backend, c.type) == (backend, type_)]
            axis.plot(
                [c.size_bytes for c in own],
                [figure_of(c) for c in own],
                marker="o" if type_ == CANONICAL else "s",
                linestyle="-" if type_ == CANONICAL else "--",
                color="C0" if backend == BACKENDS[0] else "C1",
                label=f"{backend}, {type_}",
            )
        axis.set_xscale("log")
        axis.set_xticks(sizes, [shown_size(size) for size in sizes])
        axis.set_xticks([], minor=True)
        axis.set_xlabel("state")
        axis.set_title(title, fontsize=10)
        axis.grid(True, alpha=0.3)
    for axis in axes[:2]:
        axis.set_yscale("log")
    axes[2].axhline(1.2, color="grey", linewidth=1, linestyle=":")
    axes[2].set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    figure.savefig(path)

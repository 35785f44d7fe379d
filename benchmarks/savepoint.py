"""What a savepoint costs: taking and restoring one, and the running job's epochs meanwhile.

    python -m benchmarks.savepoint [--sizes 10MB,100MB,1GB] [--backends hashmap,rocksdb]
                                   [--epochs 8] [--driver-memory 8g] [--plot docs/savepoint.svg]

A job that keeps, for each key, a value of VALUE_BYTES is filled to each size, and then updates
ROWS_PER_EPOCH keys every INTERVAL_S. After `--epochs` epochs savepoints of both types are taken in
turns, for at least as many epochs; then come as many epochs again without one. Of each savepoint:

- *write*: from the end of its epoch to the whole savepoint; it does not include the wait for the
  epoch, which is one of the job's own. "MB/s" is of the state's bytes (keys and values);
- *a core*: of the CPU time of Spark's process meanwhile, without what the same time of the job
  alone costs;
- *÷ copy*: its time by that of copying the savepoint's files with `shutil.copytree`, right after;
- *restore*: from the call to the checkpoint that a new job begins with, before its first epoch.

Figures are medians. An epoch is one *during* a take if they overlap. The first savepoint of a size
is not counted. It needs `pip install 'tidemark[bench]'`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import tidemark as tm
import tidemark.job
from benchmarks.checkpoint import UNITS, NothingSink, keyed_file, shown_size, state_of
from tidemark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from tidemark.runtime.session import spark_session
from tidemark.savepoints import taking

VALUE_BYTES = 1000
FILL_ROWS_PER_EPOCH = 100_000
ROWS_PER_EPOCH = 2_000
INTERVAL_S = 1.0
WARM_UP = 3
PATIENCE_S = 600.0
RESTORES = 2
"""Of a savepoint; of a large one a single one, which takes long enough."""
TYPES = ("canonical", "native")
BACKENDS = ("hashmap", "rocksdb")


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
    copy_s: list[float] = field(default_factory=list)
    restore_s: list[float] = field(default_factory=list)
    alone_ms: list[int] = field(default_factory=list)
    during_ms: list[int] = field(default_factory=list)
    """Durations of the epochs without and during a take."""

    def rate(self, took_s: Sequence[float]) -> str:
        """Return MB of state a second of the median, if that is not lost in what else was done."""
        median_s = statistics.median(took_s)
        return f"{self.state_bytes / 1e6 / median_s:.0f}" if median_s > 0.01 else "?"


class Feeder:
    """A file of updates every INTERVAL_S, each of ROWS_PER_EPOCH keys that are evenly spread."""

    def __init__(self, directory: Path, keys: int) -> None:
        self._directory = directory
        self._keys = keys
        self._files = itertools.count()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def fill(self) -> int:
        """Add every key once; return how many files that were."""
        for first in range(0, self._keys, FILL_ROWS_PER_EPOCH):
            last = min(self._keys, first + FILL_ROWS_PER_EPOCH)
            keyed_file(self._directory, next(self._files), range(first, last))
        return -(-self._keys // FILL_ROWS_PER_EPOCH)

    def _run(self) -> None:
        step = self._keys // min(ROWS_PER_EPOCH, self._keys)
        while not self._ended.wait(INTERVAL_S):
            number = next(self._files)
            keyed_file(self._directory, number, range(number % step, self._keys, step))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def declare(scratch: Path, name: str, backend: str) -> tm.Job:
    job = tm.Job(
        name,
        tm.CheckpointConfig(
            storage=str(scratch / "store"), interval=INTERVAL_S, state_backend=backend
        ),
        output_mode="update",
    )
    options = {"maxFilesPerTrigger": 1}
    source = tm.FileSource(str(scratch / "in"), "parquet", "key BIGINT", options=options)
    counts = state_of(job.source(source, "in"))
    job.uid(counts, "state")
    job.sink(counts, NothingSink(), "nothing")  # type: ignore[arg-type]
    return job


@contextlib.contextmanager
def timed(owner: Any, name: str) -> Iterator[list[tuple[float, float]]]:
    """Note when each call of a function begins and ends."""
    function, spans = getattr(owner, name), []

    def call(*arguments: Any, **named: Any) -> Any:
        begin_s = time.time()
        try:
            return function(*arguments, **named)
        finally:
            spans.append((begin_s, time.time()))

    setattr(owner, name, call)
    try:
        yield spans
    finally:
        setattr(owner, name, function)


class Running:
    """The job, in a thread."""

    def __init__(self, job: tm.Job, **how: Any) -> None:
        self.job = job
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, kwargs=how)
        self._thread.start()

    def _run(self, **how: Any) -> None:
        try:
            self.job.run(**how)
        except BaseException as error:
            self._error = error

    def epochs(self) -> list[CheckpointStatistics]:
        """Return the epochs that are complete, oldest first."""
        if self._error is not None:
            raise self._error
        try:
            history = self.job.checkpoints().history
        except tm.TidemarkError:  # it has no directory yet
            return []
        done = (c for c in history if c.status is CheckpointStatus.COMPLETED and not c.is_savepoint)
        return sorted(done, key=lambda c: c.id)

    def wait(self, is_enough: Callable[[list[CheckpointStatistics]], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_enough(self.epochs()):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{len(self.epochs())} epochs in {PATIENCE_S:g} s")
            time.sleep(0.2)

    def wait_for_more(self, count: int) -> None:
        now = max((c.id for c in self.epochs()), default=-1)
        self.wait(lambda done: bool(done) and done[-1].id >= now + count)

    def end(self) -> None:
        self.job.stop()
        self._thread.join()
        if self._error is not None:
            raise self._error


def measure(spark: SparkSession, size_bytes: int, backend: str, epochs: int) -> list[Cell]:
    jvm = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]

    def cpu_s() -> float:
        times = jvm.cpu_times()
        return float(times.user + times.system)

    cells = {type_: Cell(size_bytes, backend, type_) for type_ in TYPES}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        (scratch / "in").mkdir()
        feeder = Feeder(scratch / "in", size_bytes // VALUE_BYTES)
        fills = feeder.fill()
        running = Running(declare(scratch, "bench", backend))
        running.wait(lambda done: bool(done) and done[-1].id >= fills - 1)
        takes: list[tuple[str, float, float]] = []
        with feeder, timed(taking, "export_savepoint") as exports:
            running.wait_for_more(WARM_UP)
            for type_ in TYPES:  # not counted
                shutil.rmtree(take(running.job, type_, scratch))
            running.wait_for_more(WARM_UP)
            begin_s, begin_cpu_s = time.time(), cpu_s()
            running.wait_for_more(epochs)
            alone_cpus = (cpu_s() - begin_cpu_s) / (time.time() - begin_s)
            last = {}
            for type_, cell in cells.items():
                seen = len(running.epochs())
                while len(cell.write_s) < 3 or len(running.epochs()) - seen < epochs:
                    if type_ in last:
                        shutil.rmtree(last[type_])
                    exports.clear()
                    begin_s, begin_cpu_s = time.time(), cpu_s()
                    last[type_] = take(running.job, type_, scratch)
                    used_s = cpu_s() - begin_cpu_s - alone_cpus * (time.time() - begin_s)
                    takes.append((type_, begin_s, time.time()))
                    ((export_begin_s, export_end_s),) = exports
                    cell.write_s.append(export_end_s - export_begin_s)
                    cell.cpu_s.append(used_s)
                    cell.copy_s.append(copy(last[type_], scratch / "copy"))
                running.wait_for_more(2)
            running.wait_for_more(epochs)
        counted = [c for c in running.epochs() if c.rows == min(ROWS_PER_EPOCH, feeder._keys)]
        running.end()
        spread(counted[WARM_UP:], takes, cells)
        for type_, cell in cells.items():
            cell.disk_bytes = size_of(last[type_])
            record = tm.Savepoint(last["canonical"]).record
            cell.state_bytes = sum(operator.bytes for operator in record.operators)
            for number in range(RESTORES if size_bytes <= 200_000_000 else 1):
                cell.restore_s.append(restore(scratch, f"{type_}-{number}", backend, last[type_]))
    return list(cells.values())


def take(job: tm.Job, type_: str, scratch: Path) -> Path:
    path = job.savepoint(str(scratch / "savepoints"), type=type_).result(PATIENCE_S)
    return Path(path.removeprefix("file://"))


def copy(savepoint: Path, target: Path) -> float:
    begin_s = time.time()
    shutil.copytree(savepoint, target)
    took_s = time.time() - begin_s
    shutil.rmtree(target)
    return took_s


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def spread(
    epochs: Sequence[CheckpointStatistics],
    takes: Sequence[tuple[str, float, float]],
    cells: dict[str, Cell],
) -> None:
    """Say of each epoch whether it was during a take."""
    for epoch in epochs:
        begin_s = epoch.trigger_timestamp / 1e3
        end_s = begin_s + epoch.end_to_end_duration / 1e3
        during = {type_ for type_, start_s, stop_s in takes if begin_s < stop_s and start_s < end_s}
        for type_, cell in cells.items():
            if not during:
                cell.alone_ms.append(epoch.end_to_end_duration)
            elif type_ in during:
                cell.during_ms.append(epoch.end_to_end_duration)


def restore(scratch: Path, name: str, backend: str, savepoint: Path) -> float:
    """Begin a new job with the savepoint; return how long its restore takes, in seconds."""
    with timed(tidemark.job, "restore_job") as restores:
        running = Running(declare(scratch, name, backend), restore=str(savepoint))
        running.wait(bool)  # it can be stopped then
        running.end()
    shutil.rmtree(scratch / "store" / name)
    ((begin_s, end_s),) = restores
    return end_s - begin_s


def table(cells: Sequence[Cell]) -> Table:
    found = Table(title=f"state of rows of {VALUE_BYTES} bytes")
    columns = ("state", "backend", "type", "on disk", "write s", "MB/s", "MB/s a core", "÷ copy",
               "restore s", "epoch alone ms", "during", "÷ alone", "epochs")  # fmt: skip
    for number, column in enumerate(columns):
        found.add_column(column, justify="left" if number < 3 else "right")
    for cell in cells:
        write_s, copy_s = statistics.median(cell.write_s), statistics.median(cell.copy_s)
        alone_ms = statistics.median(cell.alone_ms)
        during_ms = statistics.median(cell.during_ms)
        found.add_row(
            shown_size(cell.size_bytes),
            cell.backend,
            cell.type,
            shown_size(cell.disk_bytes),
            f"{write_s:.2f}",
            cell.rate(cell.write_s),
            cell.rate(cell.cpu_s),
            f"{write_s / copy_s:.2f}",
            f"{statistics.median(cell.restore_s):.2f}",
            f"{alone_ms:.0f}",
            f"{during_ms:.0f}",
            f"{during_ms / alone_ms:.2f}",
            f"{len(cell.alone_ms)} + {len(cell.during_ms)}",
        )
    return found


def plot(cells: Sequence[Cell], path: Path) -> None:
    """Draw the seconds of takes and restores by size, and the epochs during a take."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    sizes = sorted({c.size_bytes for c in cells})
    lines = sorted({(c.backend, c.type) for c in cells})
    panels: tuple[tuple[str, Callable[[Cell], float]], ...] = (
        ("take: seconds to write", lambda c: statistics.median(c.write_s)),
        ("restore: seconds", lambda c: statistics.median(c.restore_s)),
        (
            "epochs during a take ÷ without",
            lambda c: statistics.median(c.during_ms) / statistics.median(c.alone_ms),
        ),
    )
    for axis, (title, figure_of) in zip(axes, panels, strict=True):
        for backend, type_ in lines:
            own = [c for c in cells if (c.backend, c.type) == (backend, type_)]
            axis.plot(
                [c.size_bytes for c in own],
                [figure_of(c) for c in own],
                marker="o" if type_ == "canonical" else "s",
                linestyle="-" if type_ == "canonical" else "--",
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="10MB,100MB,1GB")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--epochs", type=int, default=8, help="before, during, and after the takes")
    parser.add_argument("--driver-memory", default="8g", help="1 GB in hashmap needs about 6g")
    parser.add_argument("--plot", type=Path, help="an .svg or .png file")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {arguments.driver_memory} pyspark-shell"
    console = Console(width=150)
    spark = spark_session("benchmark")
    cells: list[Cell] = []
    for text in arguments.sizes.split(","):
        size = round(float(text[:-2]) * UNITS[text[-2:]])
        for backend in arguments.backends.split(","):
            cells += measure(spark, size, backend, arguments.epochs)
            console.print(table(cells[-len(TYPES) :]))
    console.print(table(cells))
    if arguments.plot:
        plot(cells, arguments.plot)


if __name__ == "__main__":
    main()

"""What a savepoint costs: taking and restoring one, and the running job's epochs meanwhile.

    python -m benchmarks.savepoint [--sizes 10MB,100MB,1GB] [--backends hashmap,rocksdb]
                                   [--takes 5] [--driver-memory 8g] [--plot docs/savepoint.svg]

A job that keeps, for each key, a value of VALUE_BYTES is filled to each size, and then updates
ROWS_PER_EPOCH keys every INTERVAL_S. Savepoints of both types are taken in turns, `--takes` of
each, with epochs that run alone in between. The first one of a size is shown apart: that of the
program pays for what Java loads and compiles once. Of each savepoint:

- *write*: from when the epoch is known to the whole savepoint. It does not include the wait for
  the epoch, which is one of the job's own. "MB/s" is of the state's bytes (keys and values);
- *a core*: of the CPU time of Spark's process, garbage collection and compilation included, less
  what as many epochs cost that ran alone just before and after; the mean;
- *÷ copy*: its time by that of copying the savepoint's files, after each, from warm page cache and
  to the same file system, as the take. "Hadoop" is `FileUtil.copy` in Spark's process, which is
  what ``hadoop fs -cp`` does, once that has started: the copy that works wherever a savepoint can
  be. "kernel" is `shutil.copytree`: no checksums, one thread, and the bytes never leave the kernel.
  The take compares each file with Spark's checksums, sums it up for the savepoint's record, and
  syncs its small files to the disk; it has four threads. None of the three syncs the large files;
- *restore*: from the call to the checkpoint that a new job begins with, before its first epoch.

Figures are medians. An epoch is one *during* a take if it was under way at some time between the
call and the whole savepoint (its own epoch is one, if there were new rows); one while it is
*written* is a later one than the savepoint's own. An epoch that ran while a copy was made or
deleted is not counted, nor is one before the first take that is.

It needs `pip install 'pyspark-seamark[bench]'`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from tests.threads import RunningJob

import seamark as sm
import seamark.job
from benchmarks.checkpoint import UNITS, NothingSink, keyed_file, plot_file, state_of
from benchmarks.savepoint_figures import BACKENDS, CANONICAL, Cell, first_takes, plot, table
from seamark.checkpoint.coordinator import Coordinator
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.savepoints.take import running as taking
from seamark.spark.session import spark_session

VALUE_BYTES = 1000
FILL_ROWS_PER_EPOCH = 100_000
ROWS_PER_EPOCH = 2_000
INTERVAL_S = 1.0
WARM_UP = 3
PATIENCE_S = 600.0
RESTORES, LARGE_BYTES = 2, 200_000_000
"""How often it is restored; from this size on once."""
TYPES = (CANONICAL, "native")


class Feeder:
    """A file of updates every INTERVAL_S, each of ROWS_PER_EPOCH keys that are evenly spread."""

    def __init__(self, directory: Path, keys: int) -> None:
        self._directory = directory
        self._keys = keys
        self.rows = min(ROWS_PER_EPOCH, keys)
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
        step = self._keys // self.rows
        while not self._ended.wait(INTERVAL_S):
            number = next(self._files)
            keyed_file(self._directory, number, range(number % step, self._keys, step))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def declare(scratch: Path, name: str, backend: str) -> sm.Job:
    job = sm.Job(
        name,
        sm.CheckpointConfig(
            storage=str(scratch / "store"), interval=INTERVAL_S, state_backend=backend
        ),
        output_mode="update",
    )
    options = {"maxFilesPerTrigger": 1}
    source = sm.FileSource(str(scratch / "in"), "parquet", "key BIGINT", options=options)
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


class Running(RunningJob):
    """The job, in a thread. One at a time."""

    last: ClassVar[int] = -1
    """The last committed epoch."""

    def __init__(self, job: sm.Job, **how: Any) -> None:
        Running.last = -1
        super().__init__(job, **how)

    @staticmethod
    def watch() -> None:
        """See each commit as it happens: to ask for the job's history would cost its epochs time,
        those without a take above all."""
        commit = Coordinator._commit

        def watched(self: Coordinator, progress: Any) -> None:
            commit(self, progress)
            Running.last = progress.epoch

        Coordinator._commit = watched  # type: ignore[method-assign]

    def wait_until(self, epoch: int) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while self.last < epoch:
            if self.error is not None:
                raise self.error
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"epoch {epoch} is not committed after {PATIENCE_S:g} s")
            time.sleep(0.02)

    def wait_for_more(self, count: int) -> None:
        self.wait_until(self.last + count)

    def epochs(self) -> list[CheckpointStatistics]:
        """Return the epochs that are complete, oldest first."""
        history = self.job.checkpoints().history
        done = (c for c in history if c.status is CheckpointStatus.COMPLETED and not c.is_savepoint)
        return sorted(done, key=lambda c: c.id)

    def end(self) -> None:
        self.job.stop()
        self._thread.join()
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class Span:
    """A time in which epochs did not run alone: a savepoint of this type and epoch was taken, or,
    without one, files were copied and deleted."""

    begin_s: float
    end_s: float
    type: str = ""
    epoch: int = -1

    def meets(self, begin_s: float, end_s: float) -> bool:
        return begin_s < self.end_s and self.begin_s < end_s


class Benched:
    """A running job of one size and backend, and what is taken from it."""

    def __init__(self, spark: SparkSession, scratch: Path, size_bytes: int, backend: str) -> None:
        self._spark = spark
        self._jvm = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]
        self._scratch = scratch
        (scratch / "in").mkdir()
        self.cells = {type_: Cell(size_bytes, backend, type_) for type_ in TYPES}
        self.feeder = Feeder(scratch / "in", size_bytes // VALUE_BYTES)
        fills = self.feeder.fill()
        self.running = Running(declare(scratch, "bench", backend))
        self.running.wait_until(fills - 1)
        self._spans: list[Span] = []
        self._counted_from_s = math.inf
        self._alone: list[tuple[float, int]] = []
        """CPU time, and how many epochs that were, before each take and after the last one."""

    def _cpu_s(self) -> float:
        times = self._jvm.cpu_times()
        return float(times.user + times.system)

    def alone(self, epochs: int) -> None:
        """Let epochs run."""
        cpu_s, epoch = self._cpu_s(), self.running.last
        self.running.wait_for_more(epochs)
        self._alone.append((self._cpu_s() - cpu_s, self.running.last - epoch))

    def take(self, type_: str) -> tuple[Path, float, tuple[float, int]]:
        """Take a savepoint. Called just after an epoch, returns just after one. Return where it is,
        how long it was written, and how much CPU time and how many epochs went by."""
        cpu_s, epoch = self._cpu_s(), self.running.last
        time.sleep(0.4 * INTERVAL_S)  # now there are new rows, more often than not
        with timed(taking, "open_files") as opened:  # its first step, once the epoch is known
            asked_s = time.time()
            directory = str(self._scratch / "savepoints")
            uri = self.running.job.savepoint(directory, type=type_).result(PATIENCE_S)
            whole_s = time.time()
        self.running.wait_for_more(1)
        used = self._cpu_s() - cpu_s, self.running.last - epoch
        own = sm.Savepoint(uri).record.epoch
        self._spans.append(Span(asked_s, whole_s, type_, own))
        return Path(uri.removeprefix("file://")), whole_s - opened[0][0], used

    def copy(self, savepoint: Path, *, keep: bool) -> tuple[float, float]:
        """Return how long the kernel's copy of the files takes, and Hadoop's, in seconds. Deletes
        them, and unless it is to be kept, the savepoint."""
        target, begin_s = self._scratch / "copy", time.time()
        shutil.copytree(savepoint, target)
        kernel_s = time.time() - begin_s
        shutil.rmtree(target)
        hadoop: Any = self._spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        settings = self._spark._jsparkSession.sessionState().newHadoopConf()
        old, new = hadoop.Path(f"file://{savepoint}"), hadoop.Path(f"file://{target}")
        files = old.getFileSystem(settings)
        hadoop_begin_s = time.time()
        hadoop.FileUtil.copy(files, old, files, new, False, settings)
        hadoop_s = time.time() - hadoop_begin_s
        shutil.rmtree(target)
        if not keep:
            shutil.rmtree(savepoint)
        self._spans.append(Span(begin_s, time.time()))
        return kernel_s, hadoop_s

    def take_all(self, takes: int) -> dict[str, Path]:
        """Take savepoints of both types in turns; return the last one of each."""
        used: list[tuple[float, int]] = []
        last = {}
        with self.feeder:
            self.running.wait_for_more(WARM_UP)
            for turn in range(takes + 1):
                if turn == 1:
                    self._counted_from_s = time.time()
                for type_, cell in self.cells.items():
                    self.alone(2)
                    path, write_s, cost = self.take(type_)
                    kernel_s, hadoop_s = self.copy(path, keep=turn == takes)
                    used.append(cost)
                    last[type_] = path
                    if turn == 0:
                        cell.first_write_s = write_s
                    else:
                        cell.write_s.append(write_s)
                        cell.kernel_copy_s.append(kernel_s)
                        cell.hadoop_copy_s.append(hadoop_s)
            self.alone(2)
        self.running.end()
        costs = []
        for (cpu_s, epochs), before, after in zip(used, self._alone, self._alone[1:], strict=False):
            alone_s = (before[0] + after[0]) / (before[1] + after[1])
            costs.append(cpu_s - epochs * alone_s)  # what an epoch costs still falls, as Java warms
        for number, (type_, cell) in enumerate(self.cells.items()):
            cell.first_cpu_s, *cell.cpu_s = costs[number :: len(TYPES)]
            cell.disk_bytes = size_of(last[type_])
        record = sm.Savepoint(last[CANONICAL]).record
        for cell in self.cells.values():
            cell.state_bytes = sum(operator.bytes for operator in record.operators)
        self._spread()
        return last

    def _spread(self) -> None:
        """Say of each epoch of updates whether it ran alone."""
        for epoch in self.running.epochs():
            duration_ms = epoch.end_to_end_duration
            begin_s = epoch.trigger_timestamp / 1e3
            if begin_s < self._counted_from_s or epoch.rows != self.feeder.rows:
                continue
            end_s = begin_s + duration_ms / 1e3
            met = [span for span in self._spans if span.meets(begin_s, end_s)]
            if any(not span.type for span in met):
                continue
            for type_, cell in self.cells.items():
                mine = [span for span in met if span.type == type_]
                if not met:
                    cell.alone_ms.append(duration_ms)
                elif mine:
                    cell.during_ms.append(duration_ms)
                    if any(epoch.id > span.epoch for span in mine):
                        cell.written_ms.append(duration_ms)


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def restore(scratch: Path, name: str, backend: str, savepoint: Path) -> float:
    """Begin a new job with the savepoint; return how long its restore takes, in seconds."""
    with timed(seamark.job, "restore_job") as restores:
        running = Running(declare(scratch, name, backend), restore=str(savepoint))
        running.wait_until(0)  # it can be stopped then
        running.end()
    shutil.rmtree(scratch / "store" / name)
    ((begin_s, end_s),) = restores
    return end_s - begin_s


def measure(spark: SparkSession, size_bytes: int, backend: str, takes: int) -> list[Cell]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        benched = Benched(spark, scratch, size_bytes, backend)
        last = benched.take_all(takes)
        for type_, cell in benched.cells.items():
            for number in range(1 if size_bytes > LARGE_BYTES else RESTORES):
                cell.restore_s.append(restore(scratch, f"{type_}-{number}", backend, last[type_]))
    return list(benched.cells.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="10MB,100MB,1GB")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--takes", type=int, default=5, help="of each type, size and backend")
    parser.add_argument("--driver-memory", default="8g", help="1 GB in hashmap needs about 6g")
    parser.add_argument("--plot", type=plot_file, help="an .svg or .png file")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {arguments.driver_memory} pyspark-shell"
    console = Console(width=150)
    title = f"state of rows of {VALUE_BYTES} bytes; epochs in ms (how many)"
    Running.watch()
    spark = spark_session("benchmark")
    cells: list[Cell] = []
    for text in arguments.sizes.split(","):
        size = round(float(text[:-2]) * UNITS[text[-2:]])
        for backend in arguments.backends.split(","):
            cells += measure(spark, size, backend, arguments.takes)
            console.print(table(cells[-len(TYPES) :], title))
    console.print(table(cells, title))
    console.print(first_takes(cells))
    if arguments.plot:
        plot(cells, arguments.plot)


if __name__ == "__main__":
    main()

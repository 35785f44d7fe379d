"""Run a job for hours under random kills, and measure whether what it holds levels off.

    python -m benchmarks.soak [--minutes 120] [--calm-minutes 4] [--seed N] [--out DIR]
                              [--plot docs/soak.svg]

Kafka (three brokers) to Kafka and PostgreSQL in one job, each row followed by the readers of
`seamark verify`: a row lost, duplicated or shown too early ends the command with 1. Between the
faults the job is left alone for minutes, so that a driver lives long enough to grow. Every quarter
of a minute a line of samples.csv has what the job's processes, systems and checkpoint hold.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import psutil
import psycopg

from benchmarks.checkpoint import plot_file
from seamark.model.ignored import ignored
from seamark.sinks.kafka.broker import BrokerConnection
from seamark.verify import plan
from seamark.verify.driver import DriverProcess
from seamark.verify.outcome import Outcome
from seamark.verify.readers import share_memory
from seamark.verify.systems import Systems
from seamark.verify.trial import Trial, Workload
from seamark.verify.workloads import WORKLOADS

WORKLOAD = "kafka-to-kafka+postgres"
FAULTS = ("driver", "python-worker", "broker", "database")
HELD_BY_POSTGRES = """
select (select count(*) from pg_prepared_xacts),
  (select count(*) from pg_stat_activity where backend_type = 'client backend')"""
EVERY_S = 15.0
SETTLED_S = 180.0
"""A driver younger than this still grows: classes are loaded, the heap is taken."""


@dataclass(frozen=True)
class Sample:
    """One look. `driver` counts the drivers so far, from 1, and `age_s` is its age. Memory is the
    resident one; `old_mb` is what the JVM's old generation has in use. `ongoing` are Kafka's
    transactions, `prepared` PostgreSQL's."""

    time_s: float
    driver: int
    age_s: float
    jvm_mb: float
    old_mb: float
    python_mb: float
    workers_mb: float
    threads: int
    sockets: int
    descriptors: int
    ongoing: int
    prepared: int
    connections: int
    checkpoint_files: int
    checkpoint_kb: int
    verify_mb: float


class Sampler(threading.Thread):
    """Writes a line of `path` every EVERY_S seconds until `close`. A look that meets a killed
    process or server is left out, and said in the log."""

    def __init__(self, systems: Systems, workload: Workload, path: Path) -> None:
        super().__init__(name="sampler", daemon=True)
        self._systems = systems
        self._directory = workload.directory
        self._broker = BrokerConnection(systems.kafka_direct, {})
        self._path = path
        self._over = threading.Event()
        self._begun = time.monotonic()
        self._drivers: list[DriverProcess] = []
        self.samples: list[Sample] = []

    def run(self) -> None:
        """Look until the end."""
        with self._path.open("w", newline="") as file:
            out = csv.DictWriter(file, [field.name for field in fields(Sample)])
            out.writeheader()
            while not self._over.wait(EVERY_S):
                with ignored("a look"):
                    self.samples.append(self._look())
                    out.writerow(asdict(self.samples[-1]))
                    file.flush()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()

    def _look(self) -> Sample:
        (driver,) = DriverProcess.living  # ValueError: killed just now
        if driver not in self._drivers:
            self._drivers.append(driver)
        own = psutil.Process(driver.pid)
        tree = driver.tree()
        jvm = [p for p in tree if p.name() == "java"]
        workers = [p for p in tree if p not in [own, *jvm]]
        with psycopg.connect(self._systems.postgres_direct) as connection:
            prepared, clients = connection.execute(HELD_BY_POSTGRES).fetchone() or (0, 0)
        files = [f.stat().st_size for f in self._directory.rglob("*") if f.is_file()]
        return Sample(
            round(time.monotonic() - self._begun, 1),
            len(self._drivers),
            round(time.time() - own.create_time(), 1),
            _mb(jvm),
            _old_generation_mb(jvm[0].pid) if jvm else 0.0,
            _mb([own]),
            _mb(workers),
            sum(p.num_threads() for p in tree),
            sum(len(p.net_connections("all")) for p in tree),
            sum(p.num_fds() for p in tree),
            len(self._broker.open_transactions()),
            prepared,
            clients,
            len(files),
            sum(files) // 1000,
            _mb([psutil.Process()]),
        )


def _mb(processes: Sequence[psutil.Process]) -> float:
    return round(sum(p.memory_info().rss for p in processes) / 1e6, 1)


def _old_generation_mb(pid: int) -> float:
    """Ask the JDK's jstat; 0 where a JRE has none."""
    jstat = shutil.which("jstat")
    if jstat is None:
        return 0.0
    said = subprocess.run([jstat, "-gc", str(pid)], capture_output=True, text=True, check=False)
    if said.returncode:
        raise ValueError(said.stderr)
    names, values = (line.split() for line in said.stdout.splitlines())
    return round(float(dict(zip(names, values, strict=False))["OU"]) / 1000, 1)


def steps(
    seed: int, failpoints: Sequence[str], calm_s: float, deadline: float
) -> Iterator[plan.Step]:
    """Yield the plan's faults, each after a calm of `calm_s` on average; the last one's ends at the
    deadline, a time of `time.monotonic`."""
    chance = random.Random(f"soak {seed}")
    for step in plan.steps(seed, FAULTS, failpoints):
        left = deadline - time.monotonic() - 1
        if left <= 0:
            return
        yield replace(step, pause_s=min(left, chance.expovariate(1 / calm_s)))


def halves(samples: Sequence[Sample]) -> list[str]:
    """Return a line for each thing held: its median in the first and in the second half of the run,
    and the most. Drivers younger than SETTLED_S are left out."""
    settled = [s for s in samples if s.age_s > SETTLED_S]
    middle = max((s.time_s for s in samples), default=0.0) / 2
    lines = ["| held | first half | second half | at most |", "|---|---|---|---|"]
    for field in fields(Sample)[3:]:
        first, second = (
            [getattr(s, field.name) for s in settled if (s.time_s > middle) == later]
            for later in (False, True)
        )
        if first and second:
            lines.append(
                f"| {field.name} | {statistics.median(first):g} | {statistics.median(second):g} "
                f"| {max(first + second):g} |"
            )
    return lines


def plot(samples: Sequence[Sample], path: Path) -> None:
    """Draw what is held by time; a grey line where a driver began."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 3, figsize=(13, 6), layout="constrained", sharex=True)
    panels = {
        "memory, MB": ("jvm_mb", "old_mb", "python_mb", "workers_mb"),
        "threads, sockets, descriptors": ("threads", "sockets", "descriptors"),
        "open transactions": ("ongoing", "prepared"),
        "PostgreSQL's connections": ("connections",),
        "files of the checkpoint": ("checkpoint_files",),
        "kB of the checkpoint": ("checkpoint_kb",),
    }
    minutes = [s.time_s / 60 for s in samples]
    begun = [b.time_s / 60 for a, b in itertools.pairwise(samples) if b.driver > a.driver]
    for axis, (title, names) in zip(axes.flat, panels.items(), strict=True):
        for name in names:
            axis.plot(minutes, [getattr(s, name) for s in samples], linewidth=0.9, label=name)
        for minute in begun:
            axis.axvline(minute, color="0.8", linewidth=0.7, zorder=0)
        axis.set_title(title)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize="small")
    for axis in axes[-1]:
        axis.set_xlabel("minutes")
    figure.savefig(path)


def main() -> None:
    """Run it; exit code 1 where a row or a driver was not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--calm-minutes", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keeps samples.csv and the drivers' logs")
    parser.add_argument("--plot", type=plot_file, help="an .svg or .png file")
    options = parser.parse_args()
    directory = options.out or Path(tempfile.mkdtemp(prefix="seamark-soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    share_memory()
    outcome = Outcome(WORKLOAD, options.seed, " ".join(sys.argv), time.time(), faults=list(FAULTS))
    with Systems(directory, FAULTS, needs_postgres=True, brokers=3) as systems:
        workload = WORKLOADS[WORKLOAD].make(WORKLOAD, systems, directory)
        outcome.sinks = [sink.name for sink in workload.sinks]
        sampler = Sampler(systems, workload, directory / "samples.csv")
        trial = Trial(workload, systems, outcome, lambda line: print(line, flush=True))
        sampler.start()
        deadline = time.monotonic() + options.minutes * 60
        try:
            trial.run(
                steps(options.seed, workload.failpoints, options.calm_minutes * 60, deadline),
                options.minutes,
            )
        finally:
            sampler.close()
    print("\n".join(halves(sampler.samples)))
    if options.plot:
        plot(sampler.samples, options.plot)
    print(outcome.verdict(), f"(samples: {directory / 'samples.csv'})")
    sys.exit(0 if outcome.good else 1)


if __name__ == "__main__":
    main()

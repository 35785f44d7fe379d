"""What an epoch costs Spark's driver as tasks, committables, sinks and epochs grow.

    python -m benchmarks.scale [--epochs 30] [--many 20000]

Drives the real coordinator on a directory of this machine, without Spark and without a server: the
tasks' reports are made here, with committables of the Kafka sink's size, and the sinks commit
nothing. So the figures are the driver's own work: adding up, storing, sealing, committing,
statistics, ledger, clean-up.

First table: an epoch by the number of tasks, of committables a task and of sinks. CPU is that of
this process, all threads; `stored` the time on the epoch's path from the last task's end to the
stored attempt; `committed` the time from the decision to the recorded commit.

Second table: a job of 8 tasks over `--many` epochs, a row for each tenth: CPU and stored time of an
epoch, files in the job's directory, and the resident memory of this process.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.checkpoint import NothingSink
from seamark.api.config import CheckpointConfig
from seamark.checkpoint.checkpointed_job import CheckpointedJob
from seamark.checkpoint.coordinator import Coordinator
from seamark.checkpoint.row_hash import RowSums
from seamark.checkpoint.store import CheckpointStore
from seamark.checkpoint.task_reports import SinkReport, TaskReport
from seamark.files.local import LocalDirectory
from seamark.sinks.kafka.committable import KafkaCommittable, dump, load

SETTINGS = (  # tasks, committables a task, sinks
    (8, 1, 1), (100, 1, 1), (1000, 1, 1), (1000, 10, 1), (1000, 1, 8),
)  # fmt: skip
PARTITIONS = 16
"""Of a topic: what a committable and a task's ledger count."""
WARM_UP = 5


class KafkaSized(NothingSink):
    """Has the Kafka sink's committables, and commits nothing."""

    def dump(self, committable: KafkaCommittable) -> bytes:  # type: ignore[override]
        return dump(committable)

    def load(self, data: bytes) -> KafkaCommittable:  # type: ignore[override]
        return load(data)


def reports(epoch: int, tasks: int, each: int, sinks: list[str]) -> list[TaskReport]:
    """An epoch's tasks, each with `each` transactions a sink over `PARTITIONS` partitions."""
    now = time.time()

    def transaction(uid: str, task: int, number: int) -> bytes:
        name = f"seamark-3f2a91c0-0c9e41d2aa07-g1-{task:012x}-{epoch % 7}{number}{uid}"
        return dump(
            KafkaCommittable(name, 4000 + task, 3, {"out": dict.fromkeys(range(PARTITIONS), 625)})
        )

    def part(uid: str, task: int) -> SinkReport:
        targets = {
            f"out/{p}": RowSums(625, 2**63 + p + task, 2**62 + p + epoch) for p in range(PARTITIONS)
        }
        return SinkReport(
            10_000, tuple(transaction(uid, task, n) for n in range(each)), 10**6, 0.5, 0.1, targets
        )

    return [
        TaskReport(task, 0, now - 1, now, {uid: part(uid, task) for uid in sinks})
        for task in range(tasks)
    ]  # fmt: skip


@dataclass
class Job:
    """One coordinator on a directory of its own; `epoch` runs the next one."""

    home: Path
    sinks: int
    epochs: int = 0
    cpu_s: list[float] = field(default_factory=list)
    stored_s: list[float] = field(default_factory=list)
    committed_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        uids = [f"out{number}" for number in range(self.sinks)]
        self.declared: dict[str, Any] = {uid: KafkaSized() for uid in uids}
        store = CheckpointStore(LocalDirectory(self.home), LocalDirectory(self.home / "spark"))
        for log in ("offsets", "commits"):
            (self.home / "spark" / log).mkdir(parents=True)
        self.driver = Coordinator(
            CheckpointedJob("scale", self.declared, store, CheckpointConfig(interval=1))
        )
        self.driver.start()

    def epoch(self, tasks: int, each: int) -> None:
        epoch, self.epochs = self.epochs, self.epochs + 1
        made = reports(epoch, tasks, each, list(self.declared))
        self.log("offsets", epoch)
        cpu_s, begun_s = time.process_time(), time.monotonic()
        self.driver.begin_epoch(epoch)
        self.driver.store_epoch(epoch, made, retried=False)
        stored_s = time.monotonic()
        self.log("commits", epoch)
        decided_s = time.monotonic()
        while self.driver.last_committed < epoch:
            if self.driver.failure:
                raise self.driver.failure
            time.sleep(0.001)
        self.committed_s.append(time.monotonic() - decided_s)
        self.stored_s.append(stored_s - begun_s)
        self.cpu_s.append(time.process_time() - cpu_s)
        if epoch:
            (self.home / f"spark/offsets/{epoch - 1}").unlink()
            (self.home / f"spark/commits/{epoch - 1}").unlink()

    def log(self, name: str, epoch: int) -> None:
        made = self.home / f"spark/{name}/.{epoch}"
        made.write_text("v1\n{}")
        made.rename(made.with_name(str(epoch)))


def by_size(console: Console, epochs: int) -> None:
    table = Table(
        "tasks", "committables", "sinks", "CPU", "stored", "committed", "prepared record", "reports"
    )
    for tasks, each, sinks in SETTINGS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            job = Job(Path(home), sinks)
            for _ in range(WARM_UP + epochs):
                job.epoch(tasks, each)
            record = Path(home) / f"epochs/{job.epochs - 1}/prepared.1.json"
            size = record.stat().st_size
            sent = sum(
                len(pickle.dumps(task)) for task in reports(0, tasks, each, list(job.declared))
            )
            job.driver.finish()
        median = [
            1000 * statistics.median(s[WARM_UP:])
            for s in (job.cpu_s, job.stored_s, job.committed_s)
        ]
        table.add_row(
            str(tasks), str(tasks * each * sinks), str(sinks), *(f"{ms:.1f} ms" for ms in median),
            f"{size / 1e6:.2f} MB", f"{sent / 1e6:.2f} MB",
        )  # fmt: skip
    console.print(table)


def by_epochs(console: Console, many: int) -> None:
    table = Table("epochs", "CPU", "stored", "files", "bytes", "memory")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        job = Job(Path(home), 1)
        for _ in range(10):
            job.cpu_s.clear()
            job.stored_s.clear()
            for _ in range(many // 10):
                job.epoch(8, 1)
            sizes = LocalDirectory(Path(home)).tree().values()
            table.add_row(
                str(job.epochs),
                *(f"{1000 * statistics.median(s):.2f} ms" for s in (job.cpu_s, job.stored_s)),
                str(len(sizes)),
                f"{sum(sizes) / 1e6:.1f} MB",
                f"{psutil.Process().memory_info().rss / 1e6:.0f} MB",
            )
        job.driver.finish()
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--many", type=int, default=20_000)
    asked = parser.parse_args()
    console = Console()
    by_size(console, asked.epochs)
    by_epochs(console, asked.many)
    console.print(
        f"highest memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB"
    )


if __name__ == "__main__":
    main()

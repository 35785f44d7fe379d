"""What a checkpoint costs: its duration by size of state and backend, and our own bookkeeping.

    python -m benchmarks.checkpoint [--sizes 10MB,100MB,1GB] [--backends hashmap,rocksdb,changelog]
                                    [--epochs 40] [--driver-memory 8g] [--plot docs/checkpoint.svg]

First part: a job that keeps, for each key, a value of 1,000 bytes is filled to each size, and then
updates ROWS_PER_EPOCH keys, evenly spread, every INTERVAL: a constant rate, whatever the size. The
durations and sizes are the job's own statistics, of the epochs after the fill and WARM_UP more.

Second part: the same query (a thousand rows an epoch, `mapInArrow`, `collect`), with Seamark and a
sink that does nothing, and without Seamark, in turns, in one session. The difference between the
medians of Spark's trigger durations is what Seamark adds to the epoch; what it does beside the
epoch is timed by its own clock.

It needs `pip install 'pyspark-seamark[bench]'`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import seamark as sm
from seamark.checkpoint.manifest import ManifestWriter
from seamark.checkpoint.statistics_recorder import StatisticsRecorder
from seamark.contracts.sink import AbortOutcome, CommitOutcome
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.model.redaction import Redactor
from seamark.run.job_plan import JobPlan
from seamark.run.query import StreamRun
from seamark.spark.session import spark_session

VALUE_BYTES = 1000
FILL_ROWS_PER_EPOCH = 100_000
ROWS_PER_EPOCH = 2_000
INTERVAL_S = 2.0
WARM_UP = 5
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
BACKENDS: dict[str, dict[str, Any]] = {
    "hashmap": {"state_backend": "hashmap"},
    "rocksdb": {"state_backend": "rocksdb"},
    "changelog": {"state_backend": "rocksdb", "changelog": True},
}


# --- first part: duration by size of state


@dataclass
class Measured:
    """The counted epochs of one size and backend."""

    size_bytes: int
    backend: str
    checkpoints: Sequence[CheckpointStatistics]

    def of(self, figure: str) -> list[int]:
        return [getattr(c, figure) for c in self.checkpoints]


def keyed_file(directory: Path, number: int, keys: Iterable[int]) -> None:
    """Add one file: one epoch's rows. It appears whole, in the order of its number."""
    temporary = directory / f".{number}.tmp"
    pq.write_table(pa.table({"key": pa.array(keys, pa.int64())}), temporary)
    os.utime(temporary, (number, number))  # Spark takes older files first
    temporary.rename(directory / f"{number:06d}.parquet")


def state_of(rows: DataFrame) -> DataFrame:
    """Keep VALUE_BYTES of hardly compressible text for each key, new at every update."""
    parts = [F.sha2(F.concat("key", F.lit(f"-{i}-"), F.rand()), 512) for i in range(8)]
    value = F.substring(F.concat(*parts), 1, VALUE_BYTES)
    return (
        rows.select("key", value.alias("value"))
        .groupBy("key")
        .agg(F.max("value").alias("value"), F.count("*").alias("updates"))
        .select("key", "updates", F.length("value").alias("length"))  # else Spark would not keep it
    )


def measure(size_bytes: int, backend: str, epochs: int) -> Measured:
    keys = size_bytes // VALUE_BYTES
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch) / "in"
        directory.mkdir()
        fills = -(-keys // FILL_ROWS_PER_EPOCH)
        for number in range(fills):
            first = number * FILL_ROWS_PER_EPOCH
            keyed_file(directory, number, range(first, min(keys, first + FILL_ROWS_PER_EPOCH)))
        rows = min(ROWS_PER_EPOCH, keys)
        for number in range(WARM_UP + epochs):
            chosen = range(number % (keys // rows), keys, keys // rows)[:rows]
            keyed_file(directory, fills + number, chosen)
        job = sm.Job(
            "bench",
            sm.CheckpointConfig(storage=scratch, interval=INTERVAL_S, **BACKENDS[backend]),
            output_mode="update",
        )
        source = sm.FileSource(
            str(directory), "parquet", "key BIGINT", options={"maxFilesPerTrigger": 1}
        )
        counts = state_of(job.source(source, "in"))
        job.uid(counts, "state")
        job.sink(counts, NothingSink(), "nothing")  # type: ignore[arg-type]
        running = threading.Thread(target=job.run)
        running.start()
        last = fills + WARM_UP + epochs - 1
        done: list[CheckpointStatistics] = []
        while running.is_alive() and len(done) <= last:
            time.sleep(1)
            found = job.checkpoints() if (Path(scratch) / "bench/statistics").exists() else None
            done = (
                [c for c in found.history if c.status is CheckpointStatus.COMPLETED]
                if found
                else []
            )
        job.stop()
        running.join()
    counted = [c for c in reversed(done) if fills + WARM_UP <= c.id <= last]
    assert len(counted) == epochs, (
        f"{backend}, {size_bytes}: the job ended after {len(done)} epochs"
    )
    assert all(c.rows == rows for c in counted), "the rate was not constant"
    return Measured(size_bytes, backend, counted)


def shown_size(size_bytes: float) -> str:
    unit = next(u for u in reversed(UNITS) if size_bytes >= UNITS[u] or u == "kB")
    return f"{size_bytes / UNITS[unit]:.3g} {unit}"


def sizes_table(results: Sequence[Measured]) -> Table:
    table = Table(title=f"{ROWS_PER_EPOCH} updates of {VALUE_BYTES} bytes every {INTERVAL_S:g} s")
    for column in ("state", "backend", "duration p50 ms", "p95 ms", "max ms", "uploaded p50",
                   "uploaded max", "to restore p50"):  # fmt: skip
        table.add_column(column, justify="left" if column in ("state", "backend") else "right")
    for result in results:
        durations = sorted(result.of("end_to_end_duration"))
        uploaded = result.of("checkpointed_size")
        table.add_row(
            shown_size(result.size_bytes),
            result.backend,
            f"{statistics.median(durations):.0f}",
            f"{durations[int(len(durations) * 0.95)]}",
            f"{durations[-1]}",
            shown_size(statistics.median(uploaded)),
            shown_size(max(uploaded)),
            shown_size(statistics.median(result.of("state_size"))),
        )
    return table


def plot_file(text: str) -> Path:
    """Return the path of a plot; what it needs is missed now, and not after all is measured."""
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("needs matplotlib: pip install 'pyspark-seamark[bench]'")
    return Path(text)


def plot(results: Sequence[Measured], path: Path) -> None:
    """Draw the median of each size and backend, with a bar from the least to the greatest."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    backends = list(dict.fromkeys(r.backend for r in results))
    sizes = sorted({r.size_bytes for r in results})
    for axes, name, title in (
        (left, "end_to_end_duration", "duration of a checkpoint, ms"),
        (right, "checkpointed_size", "uploaded by a checkpoint"),
    ):
        for number, backend in enumerate(backends):
            own = [r for r in results if r.backend == backend]
            middle = [statistics.median(r.of(name)) for r in own]
            spread = [
                [m - min(r.of(name)) for m, r in zip(middle, own, strict=True)],
                [max(r.of(name)) - m for m, r in zip(middle, own, strict=True)],
            ]
            # Side by side: two backends upload the same.
            at = [r.size_bytes * 1.08 ** (number - (len(backends) - 1) / 2) for r in own]
            label = "rocksdb + changelog" if backend == "changelog" else backend
            axes.errorbar(at, middle, yerr=spread, marker="o", capsize=3, label=label)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [shown_size(size) for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("state")
        axes.set_title(f"{title} (median, least, greatest)", fontsize=10)
        axes.grid(True, alpha=0.3)
    left.set_ylim(bottom=0)
    left.legend()
    right.set_yscale("log")
    low, high = (10.0**power for power in (5.5, 8.5))
    right.set_ylim(min(low, right.get_ylim()[0]), max(high, right.get_ylim()[1]))
    right.yaxis.set_major_formatter(lambda value, _: shown_size(value))
    right.yaxis.set_minor_formatter("")
    figure.savefig(path)


# --- second part: our own bookkeeping


@dataclass(frozen=True)
class Nothing:
    """A committable of the sink that does nothing."""

    handle: str


class NothingSink(sm.TwoPhaseCommitSink[Any]):
    """Takes part in the protocol, one transaction for each task, and does nothing else."""

    output_modes = ("append", "update")

    def describe(self) -> str:
        return "nothing"

    def select_expressions(self, schema: Sequence[Any]) -> list[str]:
        return [column.name for column in schema]

    def check_transaction_scope(self, context: Any) -> None: ...

    def create_writer(self, context: Any) -> Any:
        return NothingWriter(f"{context.epoch}-{context.partition_id}")

    def create_committer(self, context: Any) -> Any:
        return NothingCommitter()

    def dump(self, committable: Nothing) -> bytes:
        return committable.handle.encode()

    def load(self, data: bytes) -> Nothing:
        return Nothing(data.decode())


@dataclass
class NothingWriter:
    handle: str

    def write(self, batch: pa.RecordBatch) -> None: ...

    def prepare_commit(self) -> list[Nothing]:
        return [Nothing(self.handle)]

    def abort(self) -> None: ...


class NothingCommitter:
    def preflight(self) -> None: ...

    def commit(self, committables: Sequence[Nothing]) -> list[CommitOutcome]:
        return [CommitOutcome.COMMITTED] * len(committables)

    def abort(self, committables: Sequence[Nothing]) -> list[AbortOutcome]:
        return [AbortOutcome.ABORTED] * len(committables)

    def list_lingering(self) -> list[Any]:
        return []

    def close(self) -> None: ...


def count_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task of the query without Seamark does."""
    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


@dataclass
class Overhead:
    """Milliseconds an epoch: Spark's trigger, and Seamark's own work beside it."""

    plain: list[float]
    seamark: list[float]
    on_path: list[float]
    commit: list[float]
    manifest: list[float]
    statistics: list[float]


def overhead(spark: SparkSession, rounds: int, epochs: int) -> Overhead:
    """Run both queries in turns; the first round warms up."""
    found = Overhead([], [], [], [], [], [])
    with (
        timed(StatisticsRecorder, "_round") as statistics_ms,
        timed(ManifestWriter, "write") as manifest_ms,
    ):
        for number in range(rounds + 1):
            if number == 1:
                found = Overhead([], [], [], [], manifest_ms, statistics_ms)
                statistics_ms.clear()
                manifest_ms.clear()
            found.plain += plain_triggers(spark, epochs)
            found.seamark += seamark_triggers(spark, epochs, found)
    return found


@contextlib.contextmanager
def timed(owner: type, name: str) -> Iterator[list[float]]:
    """Time every call of a method, in milliseconds."""
    method, took_ms = getattr(owner, name), []

    def call(*arguments: Any) -> Any:
        before_s = time.perf_counter()
        result = method(*arguments)
        took_ms.append((time.perf_counter() - before_s) * 1e3)
        return result

    setattr(owner, name, call)
    try:
        yield took_ms
    finally:
        setattr(owner, name, method)


def overhead_table(found: Overhead) -> Table:
    table = Table(title="an epoch of 1,000 rows, 4 tasks; medians in ms")
    table.add_column("")
    table.add_column("ms", justify="right")
    plain, ours = statistics.median(found.plain), statistics.median(found.seamark)
    for name, value in (
        ("Spark's trigger without Seamark", plain),
        ("Spark's trigger with Seamark", ours),
        ("difference", ours - plain),
        ("of it: fence, prepared record", statistics.median(found.on_path)),
        ("beside the epoch: seal, committed record", statistics.median(found.commit)),
        ("beside the epoch: manifest", statistics.median(found.manifest)),
        ("beside the epoch: statistics", statistics.median(found.statistics)),
    ):
        table.add_row(name, f"{value:.1f}")
    return table


def thousand_rows(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000)
    return source.option("numPartitions", 4).load().select("value")


def plain_triggers(spark: SparkSession, epochs: int) -> list[float]:
    def run(frame: DataFrame, epoch: int) -> None:
        frame.mapInArrow(count_rows, "rows bigint").collect()

    with tempfile.TemporaryDirectory() as location:
        writer = thousand_rows(spark).writeStream.foreachBatch(run)
        query = writer.option("checkpointLocation", location).start()
        return triggers(query, epochs)


def seamark_triggers(spark: SparkSession, epochs: int, found: Overhead) -> list[float]:
    with tempfile.TemporaryDirectory() as location:
        job = sm.Job("bench", sm.CheckpointConfig(storage=location, interval=0))
        job.sink(thousand_rows(spark), NothingSink(), "nothing")
        run = StreamRun(
            JobPlan(job.declaration),
            records_uri=f"file://{location}/seamark",
            spark_location=f"file://{location}",
            trigger={"processingTime": "0 seconds"},
            redactor=Redactor(()),
        )
        durations = triggers(run.start(), epochs)
        run.wait(60)
        history = list(run.coordinator.history)
    for e in history[len(history) // 2 :]:
        found.on_path.append((e.stored_s - e.pre_committed_s) * 1e3)
        sinks_s = sum(e.sink_commit_s.values())
        found.commit.append((e.committed_s - e.decided_s - sinks_s) * 1e3)
    return durations


def triggers(query: Any, epochs: int) -> list[float]:
    """Wait for the epochs, stop the query, and return the later half of its trigger durations."""
    while query.isActive and (query.lastProgress is None or query.lastProgress["batchId"] < epochs):
        time.sleep(0.2)
    query.stop()
    durations = [
        p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]
    ]
    return durations[len(durations) // 2 :]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="10MB,100MB,1GB", help="'' leaves out the first part")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3, help="of the second part; 0 leaves it out")
    parser.add_argument("--driver-memory", default="8g", help="1 GB in hashmap needs about 6g")
    parser.add_argument("--plot", type=plot_file, help="an .svg or .png file")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {arguments.driver_memory} pyspark-shell"
    console = Console(width=140)
    spark = spark_session("benchmark")
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    results = []
    for text in filter(None, arguments.sizes.split(",")):
        size = round(float(text[:-2]) * UNITS[text[-2:]])
        for backend in arguments.backends.split(","):
            results.append(measure(size, backend, arguments.epochs))
            console.print(sizes_table(results[-1:]))
    if results:
        console.print(sizes_table(results))
        if arguments.plot:
            plot(results, arguments.plot)
    if arguments.rounds:
        console.print(overhead_table(overhead(spark, arguments.rounds, arguments.epochs)))


if __name__ == "__main__":
    main()

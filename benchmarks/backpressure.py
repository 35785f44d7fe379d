"""How long checkpoints take behind something slow, aligned and unaligned.

    python -m benchmarks.backpressure [--slow sink] [--rows 1000000] [--input-rate 50000]
                                      [--aligned-timeout 2] [--modes aligned,unaligned]
                                      [--plot docs/backpressure.svg]
                                      [--flink PYTHON --flink-jar JAR]

Real Kafka: rows come at `--input-rate` a second until there are `--rows`; the sink (Kafka too), or
with `--slow operator` a Python function before it, is slowed to a tenth of that rate. Each mode
runs in a driver of its own, one after the other, until all rows are committed. The durations are
the job's own statistics: from an epoch's start to the commit of every sink; the percentiles leave
out the first WARM_UP epochs.

`--flink` is a Python with apache-flink 2.2, `--flink-jar` its flink-sql-connector-kafka: the
pipeline with the slow function runs there too, in both modes (`flink_backpressure.py`). Its
durations are those of its REST interface, up to the completed checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

import seamark as sm
from seamark.dev.kafka import LocalKafka
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus

PARTITIONS = 4
TASKS = 2
WARM_UP = 5
VALUE = b"x" * 100
COLOURS = ("#b3541e", "#1f6f8b", "#8a6d1f", "#5b3a8c")


class SlowWriter:
    """A Kafka writer that takes `row_s` seconds for each row."""

    def __init__(self, writer: Any, row_s: float) -> None:
        self._writer = writer
        self._row_s = row_s

    def write(self, batch: pa.RecordBatch) -> None:
        time.sleep(self._row_s * batch.num_rows)
        self._writer.write(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class SlowKafkaSink(sm.KafkaSink):
    def create_writer(self, context: Any) -> Any:
        return SlowWriter(super().create_writer(context), float(os.environ["BENCH_ROW_S"]))


def slow_function(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(float(os.environ["BENCH_ROW_S"]) * batch.num_rows)
    return batch


def feed(servers: str, topic: str, rows: int, rate: float) -> None:
    """Produce rows at `rate` a second, evenly over the partitions."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    begun_s = time.monotonic()
    for number in range(rows):
        if number % 100 == 0:
            producer.poll(0)
            ahead_s = number / rate - (time.monotonic() - begun_s)
            if ahead_s > 0:
                time.sleep(ahead_s)
        while True:
            try:
                producer.produce(topic, VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def made_topics(servers: str, mode: str) -> tuple[str, str]:
    """Make a topic to read from and a topic to write to."""
    name = f"{mode}-{uuid.uuid4().hex[:8]}"
    topics = f"{name}-in", f"{name}-out"
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(t, PARTITIONS, 1) for t in topics]).values():
        made.result(30)
    return topics


def row_s(input_rate: float) -> float:
    """Seconds that a task takes for a row, so that all tasks take a tenth of the rate."""
    return TASKS / (input_rate / 10)


def run_mode(options: dict[str, Any]) -> dict[str, Any]:
    """Run one mode in this process, and return its figures."""
    servers, rows, mode = options["servers"], options["rows"], options["mode"]
    topics = made_topics(servers, mode)
    os.environ["BENCH_ROW_S"] = str(row_s(options["input_rate"]))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as storage:
        job = sm.Job(
            "backpressure",
            sm.CheckpointConfig(
                storage=storage,
                interval="1s",
                timeout="14min",
                num_retained=5,
                unaligned=mode == "unaligned",
                aligned_timeout=options["aligned_timeout"],
            ),
        )
        source = sm.KafkaSource(servers, topics=topics[:1], starting_offsets="earliest")
        values = job.source(source, "in").select("value")
        slow_sink = options["slow"] == "sink"
        sink = (SlowKafkaSink if slow_sink else sm.KafkaSink)(
            servers,
            topic=topics[1],
            delivery_guarantee="exactly-once",
            transactional_id_prefix=topics[1],
            transaction_timeout="15min",
        )
        if not slow_sink:
            values = sm.process(values, slow_function, "value BINARY", uid="slow")
        job.sink(values, sink, "out")
        fed = (servers, topics[0], rows, options["input_rate"])
        feeder = threading.Thread(target=feed, args=fed, daemon=True)
        running = threading.Thread(target=job.run)
        begun_s = time.monotonic()
        feeder.start()
        running.start()
        fed_s = 0.0
        done: list[CheckpointStatistics] = []
        while running.is_alive() and sum(c.rows for c in done) < rows:
            time.sleep(0.5)
            if not fed_s and not feeder.is_alive():
                fed_s = time.monotonic()
            done = completed(job, storage)
        ended_s = time.monotonic()
        job.stop()
        running.join()
    first_ms = done[0].trigger_timestamp
    return {
        "mode": mode,
        "rows": sum(c.rows for c in done),
        "seconds": ended_s - begun_s,
        "drain_s": ended_s - fed_s,
        "at_s": [(c.trigger_timestamp - first_ms) / 1e3 for c in done],
        "duration_s": [c.end_to_end_duration / 1e3 for c in done],
        "persisted": [c.persisted_data for c in done],
    }


def completed(job: sm.Job, storage: str) -> list[CheckpointStatistics]:
    """Return the completed checkpoints, oldest first."""
    if not (Path(storage) / "backpressure/statistics").exists():
        return []
    history = job.checkpoints().history
    return [c for c in reversed(history) if c.status is CheckpointStatus.COMPLETED]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def show(results: list[dict[str, Any]], console: Console) -> None:
    table = Table(
        "mode", "checkpoints", "median s", "p99 s", "longest s", "rows/s", "drained after s",
        "most channel state MB",
        title="Checkpoints behind a slow sink or operator",
    )  # fmt: skip
    for result in results:
        warm = result["duration_s"][WARM_UP:] or result["duration_s"]
        table.add_row(
            result["mode"],
            str(len(result["duration_s"])),
            f"{statistics.median(warm):.2f}",
            f"{percentile(warm, 0.99):.2f}",
            f"{max(warm):.2f}",
            f"{result['rows'] / result['seconds']:,.0f}",
            f"{result['drain_s']:.1f}",
            f"{max(result['persisted']) / 1e6:.2f}",
        )
    console.print(table)


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Draw each checkpoint's duration over its start, the durations by their logarithm."""
    width, height, left, bottom = 720, 320, 60, 40
    points = {r["mode"]: list(zip(r["at_s"], r["duration_s"], strict=True)) for r in results}
    last_s = max(at for of_mode in points.values() for at, _ in of_mode) or 1
    longest_s = max(took for of_mode in points.values() for _, took in of_mode)
    decades = range(-1, math.ceil(math.log10(longest_s)) + 1)

    def x(at_s: float) -> str:
        return f"{left + (width - left - 10) * at_s / last_s:.1f}"

    def y(duration_s: float) -> str:
        share = (math.log10(max(duration_s, 0.1)) + 1) / (len(decades) - 1)
        return f"{height - bottom - (height - bottom - 30) * share:.1f}"

    def text(
        at_x: object, at_y: object, words: str, anchor: str = "middle", fill: str = "#333"
    ) -> str:
        return f'<text x="{at_x}" y="{at_y}" text-anchor="{anchor}" fill="{fill}">{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(width / 2, height - 3, "start of the checkpoint, s"),
    ]
    for decade in decades:
        parts.append(f'<path d="M{left} {y(10**decade)}H{width - 10}" stroke="#ddd"/>')
        parts.append(text(left - 6, y(10**decade), f"{10.0**decade:g} s", "end"))
    parts += [text(x(last_s * n / 4), height - 18, f"{last_s * n / 4:.0f}") for n in range(5)]
    for number, (mode, of_mode) in enumerate(points.items()):
        fill = COLOURS[number]
        line = " ".join(f"{x(at)},{y(took)}" for at, took in of_mode)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{fill}"/>')
        parts += [
            f'<circle cx="{x(at)}" cy="{y(took)}" r="2.5" fill="{fill}"/>' for at, took in of_mode
        ]
        parts.append(text(left + 10 + 165 * number, 18, mode, "start", fill))
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--slow", choices=("sink", "operator"), default="sink")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--input-rate", type=float, default=50_000.0)
    parser.add_argument("--aligned-timeout", type=float, default=2.0)
    parser.add_argument("--modes", default="aligned,unaligned")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--flink", help="a Python with apache-flink 2.2; only with --slow operator")
    parser.add_argument("--flink-jar", help="its flink-sql-connector-kafka")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # one mode, in a process of its own
    arguments = parser.parse_args()
    if arguments.one:
        options = json.loads(arguments.one)
        Path(options["to"]).write_text(json.dumps(run_mode(options)), encoding="utf-8")
        return
    if arguments.flink and (arguments.slow != "operator" or not arguments.flink_jar):
        parser.error("--flink needs --slow operator and --flink-jar")
    results = []
    modes = arguments.modes.split(",")
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as scratch:
        options = {
            "servers": kafka.bootstrap_servers,
            "rows": arguments.rows,
            "input_rate": arguments.input_rate,
            "aligned_timeout": arguments.aligned_timeout,
            "slow": arguments.slow,
            "to": f"{scratch}/figures.json",
        }
        for mode in modes:
            one = json.dumps({**options, "mode": mode})
            subprocess.run(
                [sys.executable, "-m", "benchmarks.backpressure", "--one", one], check=True
            )
            results.append(json.loads(Path(options["to"]).read_text(encoding="utf-8")))
        for mode in modes if arguments.flink else ():
            results.append(flink_figures({**options, "mode": mode}, arguments))
    console = Console(width=120)
    show(results, console)
    if arguments.plot is not None:
        plot(results, arguments.plot)
        console.print(f"plot: {arguments.plot}")


def flink_figures(options: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one mode in PyFlink, and return its figures."""
    from benchmarks.flink_backpressure import run_flink

    servers, rate = options["servers"], options["input_rate"]
    topics = made_topics(servers, "flink")
    peer = {"python": arguments.flink, "jar": arguments.flink_jar}
    return run_flink(
        {**options, **peer, "tasks": TASKS, "partitions": PARTITIONS},
        topics,
        row_s(rate),
        lambda: feed(servers, topics[0], options["rows"], rate),
    )


if __name__ == "__main__":
    main()

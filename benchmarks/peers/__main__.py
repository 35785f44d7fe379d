"""Seamark, Spark, Flink and Quix Streams at the same work on this machine, in turns.

    python -m benchmarks.peers [--work a,b,c,d] [--engines seamark,spark,spark-tuned,flink,quix]
        [--rows 5000000] [--events 500000] [--rounds 3] [--warm-up 1]
        [--queries q0,q1] [--out build/peers/out]
    python -m benchmarks.peers --work recovery,latency

Works: a copies Kafka to Kafka, b calls a Python function a row and a batch, c counts per key and
window, d is Nexmark (seamark, spark-tuned and flink); recovery kills the engine's processes in work
a; latency sends few rows a second through work a. Each engine has one process tree for all rounds;
in each round the engines take turns. The folder of --out gets the raw records, the tables in
Markdown and each engine's log. `measure.py` says how time, CPU and memory are taken.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import latency
from benchmarks.peers import measure, nexmark, report, work
from benchmarks.peers.engine import ENVIRONMENTS, Engine, RefusedError
from seamark.dev.kafka import LocalKafka
from seamark.spark.jars import Request, resolve

NAMES = ["seamark", "spark", "spark-tuned", "flink", "quix"]
IN_NEXMARK = ["seamark", "spark-tuned", "flink"]
CONNECTOR = "flink-sql-connector-kafka:5.0.0-2.2"
RATE, LATENCY_S, WARM_UP_S = 200, 20, 15


class Bench:
    """One broker, the inputs that were asked for, and the engines."""

    def __init__(self, servers: str, options: argparse.Namespace, scratch: Path) -> None:
        self.servers, self.options, self.scratch = servers, options, scratch
        self.records: list[dict[str, Any]] = []
        self._engines: dict[str, Engine] = {}
        self._runs = 0

    def note(self, **record: Any) -> None:
        """Keep a record, and print it."""
        self.records.append(record)
        line = json.dumps(record)
        with (self.options.out / "records.jsonl").open("a") as out:
            out.write(line + "\n")
        print(line, flush=True)

    def engine(self, name: str) -> Engine:
        """Return an engine; it starts at the first call."""
        if name not in self._engines:
            options = {"servers": self.servers}
            if name == "flink":
                jar = resolve(
                    "flink-sql-kafka-5", Request((f"org.apache.flink:{CONNECTOR}",), False)
                )
                options["jar"] = str(jar[0])
            self._engines[name] = Engine(name, options, self.options.out / f"{name}.log")
            if not any(r["kind"] == "engine" and r["engine"] == name for r in self.records):
                self.note(kind="engine", engine=name, **self._engines[name].about)
        return self._engines[name]

    def rounds(self) -> range:
        """Return the numbers of the rounds; those that warm up are negative."""
        return range(-self.options.warm_up, self.options.rounds)

    def kill(self, name: str) -> None:
        """End an engine's tree; the next call of `engine` starts it anew."""
        if name in self._engines:
            self._engines.pop(name).kill()

    def close(self) -> None:
        for name in list(self._engines):
            self.kill(name)

    def new_run(self, name: str, what: str, source: str, *, ends: bool) -> dict[str, Any]:
        """Return a run with a topic and a storage of its own."""
        self._runs += 1
        target = f"{what}-{name}-{self._runs}"
        measure.create_topics(self.servers, [target])
        storage = self.scratch / target
        storage.mkdir()
        # Whatever the size, there are several epochs: a kill hits one, a window spans some.
        most = self.options.events // 4 if what in nexmark.QUERIES else self.options.rows // 10
        return {
            "work": what, "source": source, "target": target, "storage": str(storage), "ends": ends,
            "epoch_rows": work.EPOCH_ROWS if ends and what not in nexmark.QUERIES
            else min(work.EPOCH_ROWS, most),
        }  # fmt: skip

    def input(self, what: str) -> str:
        """Fill a work's input topic, and return its name."""
        topic = f"in-{what}"
        measure.create_topics(self.servers, [topic])
        rows = self.options.rows
        if what == "d":
            lines: Any = nexmark.records(self.options.events)
        else:
            lines = work.records(rows, sentinels=what == "c")
        measure.fill(self.servers, topic, lines)
        return topic


def throughput(bench: Bench, what: str, source: str) -> None:
    """Run a, b or c, round by round."""
    rows = bench.options.rows
    counts = work.expected_counts(rows) if what == "c" else set()
    refused = set()
    for round_ in bench.rounds():
        for name in bench.options.engines:
            if name in refused:
                continue
            engine = bench.engine(name)
            run = bench.new_run(name, what, source, ends=True)
            visible = measure.Visible(bench.servers, run["target"])
            reader = measure.Reader(bench.servers, run["target"])
            try:
                engine.ask("start", run=run)
                begun, tree = time.time(), measure.Tree(engine.pid)
                ended, values = measure.wait_for_rows(
                    visible, reader, len(counts) or rows, engine.require_alive
                )
                cpu, memory = tree.close(ended)
                assert not counts or values == counts, f"{name} counted otherwise"
                bench.note(
                    kind="throughput", work=what, engine=name, round=round_, rows=rows,
                    seconds=ended - begun, rows_per_s=rows / (ended - begun),
                    cpu_s_per_million=cpu / rows * 1e6, peak_mb=memory,
                    duplicates=reader.rows - len(values), load=os.getloadavg()[0],
                )  # fmt: skip
            except RefusedError as error:
                refused.add(name)
                bench.note(kind="refused", work=what, engine=name, reason=str(error))
            finally:
                visible.close()
                reader.close()
            engine.ask("stop")
            measure.delete_topics(bench.servers, [run["target"]])


def nexmark_queries(bench: Bench) -> None:
    """Run the queries one after another in each engine's driver, round by round. In the first round
    Spark's batch run judges what each engine committed."""
    source, events = bench.input("d"), bench.options.events
    engines = [name for name in bench.options.engines if name in IN_NEXMARK]
    by_spark = next((name for name in engines if name != "flink"), "spark-tuned")
    for round_ in (rounds := bench.rounds()):
        for query in bench.options.queries or nexmark.QUERIES:
            judged = bench.scratch / f"{query}.judge"
            for name in engines:
                engine = bench.engine(name)
                run = bench.new_run(name, query, source, ends=True)
                visible = measure.Visible(bench.servers, run["target"])
                try:
                    engine.ask("start", run=run)
                    begun, tree = time.time(), measure.Tree(engine.pid)
                    engine.ask("finish")
                except RefusedError as error:
                    if round_ == rounds[0]:
                        reason = str(error)
                        bench.note(kind="nexmark", work=query, engine=name, reason=reason)
                    continue
                finally:
                    time.sleep(2 * measure.POLL_S)
                    visible.close()
                ended = visible.history[-1][0]
                cpu, memory = tree.close(ended)
                verdict = "not asked"
                if round_ == rounds[0]:
                    if not judged.exists():
                        judge = bench.engine(by_spark)
                        judge.ask("judge", query=query, source=source, path=str(judged))
                    reader = measure.Reader(bench.servers, run["target"])
                    committed = [(m.key(), m.value()) for m in reader.messages(2)]
                    reader.close()
                    verdict = nexmark.judge(query, committed, judged)
                bench.note(
                    kind="nexmark", work=query, engine=name, round=round_, rows=events,
                    seconds=ended - begun, rows_per_s=events / (ended - begun),
                    cpu_s_per_million=cpu / events * 1e6, peak_mb=memory, judge=verdict,
                    load=os.getloadavg()[0],
                )  # fmt: skip
                measure.delete_topics(bench.servers, [run["target"]])


def recovery(bench: Bench, source: str) -> None:
    """Kill the engine's tree when a third of the rows is visible, and start it again."""
    rows = bench.options.rows
    for round_ in range(bench.options.rounds):
        for name in bench.options.engines:
            run = bench.new_run(name, "a", source, ends=False)
            reader = measure.Reader(bench.servers, run["target"])
            # The broker is asked: engines are quicker than a reader in Python.
            visible = measure.Visible(bench.servers, run["target"])
            bench.engine(name).ask("start", run=run)
            while sum(visible.history[-1][1]) < rows / 3:
                bench.engine(name).require_alive()
                time.sleep(measure.POLL_S)
            bench.kill(name)
            visible.close()
            seen = {m.value() for m in reader.messages(2)}  # what was visible already
            before, begun, first = len(seen), time.time(), 0.0
            bench.engine(name).ask("start", run=run)
            while len(seen) < rows and time.time() - begun < measure.STALLED_S:
                seen.update(m.value() for m in reader.batch(0.05))
                if not first and len(seen) > before:
                    first = time.time() - begun
            bench.note(
                kind="recovery", engine=name, round=round_, rows=rows, visible_before=before,
                first_s=first, all_s=time.time() - begun, duplicates=reader.rows - len(seen),
                lost=rows - len(seen),
            )  # fmt: skip
            reader.close()
            bench.engine(name).ask("stop")


def latencies(bench: Bench) -> None:
    """Send few rows a second, each with its time, and subtract it where they become visible."""
    for round_ in range(bench.options.rounds):
        for name in bench.options.engines:
            source = f"in-latency-{name}-{round_}"
            measure.create_topics(bench.servers, [source])
            run = bench.new_run(name, "a", source, ends=False)
            bench.engine(name).ask("start", run=run)
            reader = latency.Reader(bench.servers, run["target"], work.PARTITIONS)
            reader.start()
            begun = time.time()
            latency.feed(bench.servers, source, RATE, begun + WARM_UP_S + LATENCY_S)
            time.sleep(5 * work.INTERVAL_S)
            reader.close()
            taken = sorted(s for at, s in reader.seconds if at > begun + WARM_UP_S)
            cuts = statistics.quantiles(taken, n=100)
            bench.note(
                kind="latency", engine=name, round=round_, rate=RATE, rows=len(taken),
                p50_ms=cuts[49] * 1000, p99_ms=cuts[98] * 1000, load=os.getloadavg()[0],
            )  # fmt: skip
            bench.engine(name).ask("stop")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--work", default="a,b,c,d")
    parser.add_argument("--engines", default=",".join(NAMES))
    parser.add_argument("--rows", type=int, default=5_000_000, help="a multiple of 4")
    parser.add_argument("--events", type=int, default=500_000, help="of Nexmark: a multiple of 200")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds that do not count")
    parser.add_argument("--queries", default="", help="of Nexmark; all")
    parser.add_argument("--out", type=Path, default=ENVIRONMENTS / "out")
    options = parser.parse_args()
    options.engines = options.engines.split(",")
    options.queries = [q for q in options.queries.split(",") if q]
    options.out.mkdir(parents=True, exist_ok=True)
    works = options.work.replace("b", "b-row,b-batch").split(",") if options.work else []
    if options.rows % work.PARTITIONS or options.events % 200:
        parser.error("--rows takes a multiple of 4, --events one of 200")
    (options.out / "records.jsonl").unlink(missing_ok=True)
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        bench = Bench(kafka.bootstrap_servers, options, Path(scratch))
        bench.note(
            kind="machine", cores=os.cpu_count(), system=platform.platform(),
            python=platform.python_version(), options=vars(options) | {"out": str(options.out)},
        )  # fmt: skip
        try:
            plain = bench.input("a") if {"a", "b-row", "b-batch", "recovery"} & set(works) else ""
            for what in works:
                if what == "d":
                    nexmark_queries(bench)
                elif what == "recovery":
                    recovery(bench, plain)
                elif what == "latency":
                    latencies(bench)
                else:
                    throughput(bench, what, bench.input("c") if what == "c" else plain)
        finally:
            bench.close()
            text = report.report(bench.records)
            (options.out / "report.md").write_text(text)
            print(text)


if __name__ == "__main__":
    main()

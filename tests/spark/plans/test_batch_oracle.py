"""The judge without knowledge of Seamark: Spark's batch run of the same program.

How: Hypothesis draws a program as users write them: one or two sources, up to three stateful
operators, one to four sinks, each with stateless steps of its own over any node. The job runs over
the input in slices; it ends at some of them and is started again. In the end every sink must hold,
row for row, the result of the same query as a batch over the same input. Rows far in the future
come last, to push the watermark past everything; they are left out of the comparison. They come in
the same run as other rows: a start would give an operator its missed watermark.

`test_slow_programs.py` draws programs with slow sinks or functions, which are killed as well.

`make chaos` draws hundreds. A failure prints the program, and Hypothesis the seed.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import seamark as sm
from tests.chaos.driver import Driver
from tests.chaos.slow_sink import SlowWriter

SCHEMA = "at TIMESTAMP, k STRING, v BIGINT"
DELAY_S = 5
SLICES = 3
ROW_S = 0.01
"""What a row takes where a program is slow."""
END = "~end"
"""The key of the rows to drive the watermark on."""

Frames = dict[str, DataFrame]


# --- programs: every node has the columns k, n (numbers), at (event time)


def _events(of: Frames, name: str) -> DataFrame:
    return of[name].withWatermark("at", f"{DELAY_S} seconds").selectExpr("at", "k", "v AS n")


def _windows(rows: DataFrame) -> DataFrame:
    counts = rows.groupBy(F.window("at", "3 seconds").alias("w"), "k").agg(F.sum("n").alias("n"))
    return counts.select(F.window_time("w").alias("at"), "k", "n")


def _sessions(rows: DataFrame) -> DataFrame:
    counts = rows.groupBy(F.session_window("at", "1 second").alias("w"), "k").agg(
        F.count("*").alias("n")
    )
    return counts.select(F.col("w.end").alias("at"), "k", "n")


def _distinct_within(rows: DataFrame) -> DataFrame:
    if rows.isStreaming:  # an operator of its own, unlike in a batch
        return rows.dropDuplicatesWithinWatermark(["at", "k", "n"])
    return rows.dropDuplicates(["at", "k", "n"])


def _joined(left: DataFrame, right: DataFrame, how: str = "inner") -> DataFrame:
    other = right.selectExpr("at AS other_at", "k AS other_k", "n AS m")
    near = "other_at BETWEEN at - INTERVAL 2 SECONDS AND at + INTERVAL 2 SECONDS"
    return left.join(other, F.expr(f"k = other_k AND {near}"), how).selectExpr(
        "at", "k", "n * 10 + m AS n"
    )


NODES: dict[str, Callable[[Frames], DataFrame]] = {
    "raw": lambda of: _events(of, "a"),
    "windows": lambda of: _windows(_events(of, "a")),
    "sessions": lambda of: _sessions(_events(of, "a")),
    "distinct": lambda of: _events(of, "a").dropDuplicates(["at", "k", "n"]),
    "distinct within": lambda of: _distinct_within(_events(of, "a")),
    "windows of distinct": lambda of: _windows(NODES["distinct"](of)),
    "windows of windows": lambda of: _windows(NODES["windows"](of)),
    "union": lambda of: _events(of, "a").union(_events(of, "b")),
    "windows of union": lambda of: _windows(NODES["union"](of)),
    "join": lambda of: _joined(_events(of, "a"), _events(of, "b")),
    "left join": lambda of: _joined(_events(of, "a"), _events(of, "b"), "left"),
    "windows of the second": lambda of: _windows(_events(of, "b")),
}
TWO_SOURCES = ("union", "windows of union", "join", "left join", "windows of the second")

STEPS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "more columns": lambda rows: rows.withColumn("twice", F.col("n") * 2),
    "computed": lambda rows: rows.withColumn("n", F.col("n") + F.length("k")),
    "filter": lambda rows: rows.filter("n > 4"),
    # Where the filter does not hold, the column above it must not be computed at all.
    "guarded": lambda rows: rows.filter("n <> 3").withColumn("n", F.expr("1000 DIV (n - 3)")),
    "explode": lambda rows: rows.withColumn("n", F.explode(F.array("n", F.col("n") + 100))),
    "none or some": lambda rows: rows.withColumn(
        "n", F.explode(F.filter(F.array("n", F.col("n") + 1), lambda x: x % 3 == 0))
    ),
    "outer": lambda rows: rows.selectExpr(
        "at", "k", "explode_outer(filter(array(n), x -> x > 5)) AS n"
    ),
    "python": lambda rows: rows.withColumn(
        "n", F.udf(lambda n: -1 if n is None else 2 * n + 1, LongType())("n")
    ),
    "json": lambda rows: rows.withColumn("text", F.to_json(F.struct("k", "n"))),
}


@dataclass(frozen=True)
class Program:
    """`sinks`: of each its node, its steps, and whether its node is built anew for it, as another
    Python object. `ends`: the slices with an end and a new start of the job after them. `slow`: the
    place where rows take time, ``"sink"`` or ``"function"``. `kill`: the failpoint at which every
    driver's first attempt dies. `moves`: whether each start is that of a job with a new name."""

    sinks: tuple[tuple[str, tuple[str, ...], bool], ...]
    ends: frozenset[int] = frozenset({0})
    seed: int = 0
    slow: str = ""
    kill: str = ""
    moves: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        return ("a", "b") if any(node in TWO_SOURCES for node, _, _ in self.sinks) else ("a",)

    def outputs(self, of: Frames) -> list[DataFrame]:
        built: Frames = {}
        outputs = []
        for node, steps, anew in self.sinks:
            if anew or node not in built:
                built[node] = NODES[node](of)
            rows = built[node]
            for step in steps:
                rows = STEPS[step](rows)
            rows = rows.withColumn("at", F.unix_millis("at"))
            outputs.append(slowly(rows, f"f{len(outputs)}") if self.slow == "function" else rows)
        return outputs

    def run(self, root: Path, start: int) -> None:
        """Run the job over the slices that are there, in its start of this number."""
        job = sm.Job(f"program-{start if self.moves else 0}", self._checkpoint(root))
        sources = {name: job.source(_files(root / name), name) for name in self.sources}
        sink = SlowFileSink if self.slow == "sink" else sm.FileSink
        # A sink of Parquet takes a function's result as it is, so that an epoch may interrupt it.
        kind: Any = "parquet" if self.slow == "function" else "json"
        for index, output in enumerate(self.outputs(sources)):
            job.sink(output, sink(str(root / f"out-{index}"), format=kind), f"s{index}")
        moved = self.moves and start > 0
        job.run(restore=str(root / f"store/program-{start - 1}") if moved else None)

    def _checkpoint(self, root: Path) -> sm.CheckpointConfig:
        unaligned = {"unaligned": True, "aligned_timeout": "0s"} if self.slow else {}
        return sm.CheckpointConfig(storage=str(root / "store"), **unaligned)


def slowly(rows: DataFrame, uid: str) -> DataFrame:
    """Return the rows as a slow function makes them; in a batch it is not slow."""
    if rows.isStreaming:
        return sm.process(rows, _slow_function, rows.schema, uid=uid)
    return rows.mapInArrow(lambda batches: map(_function, batches), rows.schema)


def _function(batch: pa.RecordBatch) -> pa.RecordBatch:
    index = batch.schema.get_field_index("n")
    return batch.set_column(index, batch.schema[index], pc.add(batch.column(index), 7))


def _slow_function(batch: pa.RecordBatch) -> pa.RecordBatch:
    time.sleep(ROW_S * batch.num_rows)
    return _function(batch)


class SlowFileSink(sm.FileSink):
    def create_writer(self, context: Any) -> Any:
        return SlowWriter(super().create_writer(context), ROW_S)


programs = st.builds(
    Program,
    st.lists(
        st.tuples(
            st.sampled_from(list(NODES)),
            st.lists(st.sampled_from(list(STEPS)), max_size=3).map(tuple),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    )
    .map(tuple)
    .filter(lambda sinks: len({node for node, _, _ in sinks}) <= 3),
    st.frozensets(st.integers(0, SLICES - 2)),
    st.integers(0, 1000),
)


# --- the input, and the runs


def write_slice(directory: Path, number: int, chance: random.Random) -> None:
    """Write one slice of a source's rows; event times overlap between slices by less than the
    watermark's delay, so no row is late. The last one is the end."""
    directory.mkdir(exist_ok=True)
    rows = []
    if number < SLICES:
        for _ in range(40):
            at_s = number * 10 + chance.random() * (10 + DELAY_S - 1)
            row = {"at": _text(round(at_s, 1)), "k": chance.choice("abc"), "v": chance.randrange(8)}
            rows += [row] * chance.choice((1, 1, 2))
    else:
        rows = [{"at": _text(3600.0 * number), "k": END, "v": 0}]
    path = directory / f"{number}.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (1e9 + number, 1e9 + number))  # Spark's order of reading


def _text(at_s: float) -> str:
    minutes, seconds = divmod(at_s, 60)
    return f"2026-01-01T{int(minutes // 60):02}:{int(minutes % 60):02}:{seconds:04.1f}Z"


def held(directory: Path) -> Iterator[str]:
    """Yield the rows of a sink's files."""
    lines = (line for path in directory.rglob("*.json") for line in path.read_text().splitlines())
    parquet = (
        row for path in directory.rglob("*.parquet") for row in pq.read_table(path).to_pylist()
    )
    for row in chain(map(json.loads, lines), parquet):
        if row["k"] != END:
            yield _key(row)


def _key(row: dict[str, object]) -> str:
    return json.dumps({k: v for k, v in row.items() if v is not None}, sort_keys=True)


def _files(directory: Path) -> sm.FileSource:
    one_an_epoch = {"maxFilesPerTrigger": 1}
    return sm.FileSource(str(directory), "json", SCHEMA, ending="latest", options=one_an_epoch)


def run_as_stream(program: Program, root: Path) -> list[Counter[str]]:
    chance = random.Random(program.seed)
    start = 0
    for number in range(SLICES + 1):
        for name in program.sources:
            write_slice(root / name, number, chance)
        if number < SLICES and number not in program.ends:
            continue
        if program.kill:
            run_and_kill(program, root, start)
        else:
            program.run(root, start)
        start += 1
    return [Counter(held(root / f"out-{index}")) for index in range(len(program.sinks))]


def run_and_kill(program: Program, root: Path, start: int) -> None:
    """Run the job in drivers of their own until one ends by itself; the first is to be killed."""
    options = {**asdict(program), "ends": sorted(program.ends), "root": str(root), "start": start}
    failpoint: str | None = program.kill
    for attempt in range(4):
        log = root / f"driver-{start}-{attempt}.log"
        driver = Driver(Path(__file__).with_name("oracle_app.py"), options, log, failpoint)
        code = driver.wait(300)
        driver.kill_tree()
        if code == 0:
            return
        assert failpoint, f"a driver that was not killed failed:\n{driver.tail()}"
        failpoint = None


def run_as_batch(spark: SparkSession, program: Program, root: Path) -> list[Counter[str]]:
    frames = {name: spark.read.schema(SCHEMA).json(str(root / name)) for name in program.sources}
    return [
        Counter(_key(row.asDict()) for row in output.collect() if row["k"] != END)
        for output in program.outputs(frames)
    ]


def check(spark: SparkSession, program: Program) -> int:
    """Return how many epochs of the first job left rows to the next one."""
    with TemporaryDirectory() as directory:
        streamed = run_as_stream(program, Path(directory))
        wanted = run_as_batch(spark, program, Path(directory))
        config = sm.CheckpointConfig(storage=f"{directory}/store")
        history = sm.Job("program-0", config).checkpoints().history
    for (node, steps, _), found, expected in zip(program.sinks, streamed, wanted, strict=True):
        lost, more = expected - found, found - expected
        assert not lost and not more, (
            f"{program}: the sink of {node!r} with {steps} lost {lost.total()} of "
            f"{expected.total()} rows and has {more.total()} more: {lost} {more}"
        )
    return sum(checkpoint.unaligned for checkpoint in history)


ISSUE = Program(
    (
        ("windows", ("json",), False),
        ("windows", (), False),
        ("windows", ("filter",), False),
        ("windows", ("explode", "filter"), True),
    )
)
"""Two sinks, each with its own columns of one windowed stream: the second stayed empty."""
NOT_SHARED = Program(
    (("windows", ("filter", "python"), False), ("windows", (), False), ("raw", ("guarded",), True))
)
"""A Python function above a filter, and rows beside their aggregation: three branches."""


def test_the_batch_run_has_rows_of_every_kind(spark: SparkSession) -> None:
    """Else the comparison would be one of nothing with nothing."""
    every = Program(tuple((node, (), False) for node in NODES))
    with TemporaryDirectory() as directory:
        for number in range(SLICES + 1):
            for name in every.sources:
                write_slice(Path(directory) / name, number, random.Random(number))
        counts = [rows.total() for rows in run_as_batch(spark, every, Path(directory))]
    assert all(count > 10 for count in counts), counts


@pytest.mark.parametrize("program", [ISSUE, NOT_SHARED], ids=["shared", "not shared"])
def test_sinks_of_one_stream_hold_what_a_batch_gives(spark: SparkSession, program: Program) -> None:
    check(spark, program)


QUIET = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
}


@settings(max_examples=4, derandomize=True, **QUIET)
@example(Program((("join", ("filter",), False), ("join", ("explode",), True))))
@given(program=programs)
def test_random_programs_hold_what_a_batch_gives(spark: SparkSession, program: Program) -> None:
    check(spark, program)


@pytest.mark.chaos
@pytest.mark.timeout(4 * 3600)
@settings(max_examples=200, **QUIET)
@given(program=programs)
def test_hundreds_of_programs(spark: SparkSession, program: Program) -> None:
    check(spark, program)

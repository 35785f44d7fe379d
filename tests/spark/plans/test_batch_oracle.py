"""The judge without knowledge of Seamark: Spark's batch run of the same program.

How: Hypothesis draws a program as users write them, in DataFrames and SQL: one or two sources, up
to three stateful operators, one to four sinks, each with stateless steps of its own over any node;
or one query of `write_stream` in another output mode (`Query`). The job runs over
the input in slices; it ends at some of them and is started again. In the end every sink must hold,
row for row, the result of the same query as a batch over the same input. Rows far in the future
come last, to push the watermark past everything; they are left out of the comparison. They come in
the same run as other rows: a start would give an operator its missed watermark.

`test_slow_programs.py` draws programs with slow sinks or functions, which are killed as well.

`make chaos` draws hundreds, or ORACLE_DRAWS. A failure prints the program, and Hypothesis the seed.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType

import seamark as sm
from seamark.model.errors import ConfigurationError
from seamark.verify.conformance.odd_values import ODD_NAMES, ODD_VALUES
from tests.chaos.driver import Driver
from tests.chaos.slow_sink import SlowWriter

SCHEMA = "at TIMESTAMP, k STRING, v BIGINT"
DELAY_S = 5
SLICES = 3
ROW_S = 0.01
"""What a row takes where a program is slow."""
STATE = "transform with state"
END = "~end"
"""The key of the rows to drive the watermark on."""
END_MS = 1767225600_000 + 3600_000
"""A time after all other rows, and before those."""

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


def _semi(left: DataFrame, right: DataFrame) -> DataFrame:
    other = right.selectExpr("at AS other_at", "k AS other_k", "n AS m")
    near = "other_at BETWEEN at - INTERVAL 1 SECONDS AND at + INTERVAL 1 SECONDS"
    return left.join(other, F.expr(f"k = other_k AND n < m AND {near}"), "left_semi")


def _sql(of: Frames, text: str) -> DataFrame:
    frames = {name: _events(of, name) for name in of if f"{{{name}}}" in text}
    return next(iter(frames.values())).sparkSession.sql(text, **frames)


class FirstSeen(StatefulProcessor):
    """Gives each number of a key once."""

    def init(self, handle: Any) -> None:
        self._seen = handle.getMapState("seen", "n BIGINT", "yes BOOLEAN")

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Row]:  # noqa: N802
        for row in rows:
            if not self._seen.containsKey((row.n,)):
                self._seen.updateValue((row.n,), (True,))
                yield Row(k=row.k, n=row.n)

    def close(self) -> None:
        pass


def _first_seen(rows: DataFrame) -> DataFrame:
    if rows.isStreaming:
        by_key = rows.groupBy("k")
        seen = by_key.transformWithState(FirstSeen(), "k STRING, n BIGINT", "append", "none")
    else:
        seen = rows.select("k", "n").distinct()
    return seen.selectExpr("CAST(NULL AS TIMESTAMP) AS at", "k", "n")


WINDOWS = (
    "SELECT window_time(w) AS at, k, n FROM "
    "(SELECT window(at, '3 seconds') AS w, k, {} AS n FROM {} GROUP BY 1, 2)"
)
SUMS = WINDOWS.format("sum(n)", "{a}")
QUERIES = {
    "expression": "WITH w AS (SELECT * FROM {a} WHERE n > 1) SELECT at, k, n FROM w",
    "expression twice": (
        "WITH w AS (SELECT * FROM {a} WHERE n > 1) "
        "SELECT at, k, n FROM w UNION ALL SELECT at, k, n + 50 FROM w WHERE n > 3"
    ),
    "counting expression twice": (
        f"WITH w AS ({SUMS}) "
        "SELECT at, k, n FROM w WHERE k <> 'a' UNION ALL SELECT at, k, n + 50 FROM w"
    ),
    "having": SUMS.replace("1, 2", "1, 2 HAVING sum(n) > 4"),
    "set union": "SELECT at, k, n FROM {a} UNION SELECT at, k, n FROM {b}",
    "subtracted": "SELECT at, k, n FROM {a} EXCEPT SELECT now(), 'a', 3L",
    "windows of select distinct": WINDOWS.format("count(*)", "(SELECT DISTINCT at, k, n FROM {a})"),
    "lateral view": "SELECT at, k, e AS n FROM {a} LATERAL VIEW explode(array(n, n + 9)) AS e",
    "sliding": WINDOWS.format("max(n) + min(n)", "{a}").replace("3 sec", "4 seconds', '2 sec"),
    "collected": WINDOWS.format(
        "aggregate(sort_array(collect_list(n)), 0L, (s, x) -> s * 3 + x)", "{a}"
    ),
    "averages": WINDOWS.format("CAST(1000 * avg(n) AS BIGINT)", "{a}"),
    "some of them": WINDOWS.format("count(n) FILTER (WHERE n > 2) * 100 + count_if(n = 1)", "{a}"),
    "rollup": (
        "SELECT window_time(w) AS at, k, n FROM (SELECT w, k, sum(n) AS n FROM "
        "(SELECT window(at, '3 seconds') AS w, k, n FROM {a}) GROUP BY w, ROLLUP (k))"
    ),
    "changing gaps": (
        "SELECT w.end AS at, k, n FROM (SELECT session_window(at, CASE WHEN n > 3 THEN "
        "'2 seconds' ELSE '500 milliseconds' END) AS w, k, sum(n) AS n FROM {a} GROUP BY 1, 2)"
    ),
    "joined with windows": (
        f"SELECT x.at, x.k, x.n * 100 + y.n AS n FROM ({SUMS}) x "
        f"JOIN ({SUMS.replace('{a}', '{b}')}) y ON x.at = y.at AND x.k = y.k"
    ),
    "joined with WHERE": (
        "SELECT x.at, x.k, x.n * 10 + y.n AS n FROM {a} x, {b} y WHERE x.k = y.k "
        "AND y.at BETWEEN x.at - INTERVAL 2 SECONDS AND x.at + INTERVAL 2 SECONDS"
    ),
}

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
    "right join": lambda of: _joined(_events(of, "a"), _events(of, "b"), "right"),
    "semi join": lambda of: _semi(_events(of, "a"), _events(of, "b")),
    "windows of join": lambda of: _windows(NODES["join"](of)),
    "join of distinct": lambda of: _joined(NODES["distinct"](of), _events(of, "b")),
    "windows of the second": lambda of: _windows(_events(of, "b")),
    STATE: lambda of: _first_seen(_events(of, "a")),
    **{name: partial(_sql, text=text) for name, text in QUERIES.items()},
}
TWO_SOURCES = (
    "union", "windows of union", "join", "left join", "windows of the second", "set union",
    "joined with WHERE", "joined with windows", "right join", "semi join",
    "windows of join", "join of distinct",
)  # fmt: skip

ODD = [
    name for name in {name.casefold(): name for name in ODD_NAMES}.values()
    if name not in ("N", "_seamark_op", "a\0b")
]  # fmt: skip
SHORT = [text for text in ODD_VALUES["string"][1] if len(text) < 100]


@cache
def _table(spark: SparkSession) -> DataFrame:
    """A table that several sinks look up: one plan, whose columns have the same ids in each."""
    return spark.sql(
        f"FROM VALUES ('a', 1L), ('a', 3L), ('b', 2L), (NULL, 9L), ('{END}', 1L) AS t(k, x)"
    )


def _looked_up(rows: DataFrame, text: str) -> DataFrame:
    return rows.sparkSession.sql(text, rows=rows, table=_table(rows.sparkSession))


WITHOUT_END = "without the end"
"""Not drawn: Spark takes some filters below the watermark, which then never sees the last row."""
STEPS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "more columns": lambda rows: rows.withColumn("twice", F.col("n") * 2),
    "computed": lambda rows: rows.withColumn("n", F.col("n") + F.length("k")),
    "filter": lambda rows: rows.filter("n > 4"),
    WITHOUT_END: lambda rows: rows.filter("n < 6"),
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
    "odd names": lambda rows: rows.withColumns({name: F.col("n") for name in ODD}),
    "odd texts": lambda rows: rows.withColumn(
        "text", F.get(F.array(*map(F.lit, SHORT)), (F.col("n") % len(SHORT)).cast("int"))
    ),
    "in a table": lambda rows: rows.sparkSession.sql(
        "SELECT * FROM {rows} WHERE k IN (SELECT k FROM VALUES ('a'), ('~end') AS t(k))", rows=rows
    ),
    "a table's maximum": lambda rows: rows.withColumn(
        "n", F.expr("n + (SELECT max(x) FROM VALUES (1L), (2L) AS t(x))")
    ),
    **{
        name: partial(_looked_up, text=f"SELECT r.at, r.k, {n} AS n FROM {{rows}} r WHERE {where}")
        for name, n, where in (
            ("its greatest", "(SELECT max(x) FROM {table} t WHERE t.k = r.k)", "true"),
            ("its least", "n - (SELECT min(x) FROM {table} t WHERE t.k = r.k)", "n > 2"),
            ("with rows", "n", "EXISTS (SELECT 1 FROM {table} t WHERE t.k = r.k AND t.x < r.n)"),
            (
                "without rows",
                "n",
                "NOT EXISTS (SELECT 1 FROM {table} t WHERE t.k = r.k AND t.x < 9 - r.n)",
            ),
            ("in the table", "n", "r.k IN (SELECT k FROM {table})"),
            ("not in the table", "n", "r.n NOT IN (SELECT x FROM {table} t WHERE t.k <=> r.k)"),
        )
    },
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
        backend = {"state_backend": "rocksdb"} if STATE in [s[0] for s in self.sinks] else {}
        return sm.CheckpointConfig(storage=str(root / "store"), **unaligned, **backend)


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
            st.lists(
                st.sampled_from([name for name in STEPS if name != WITHOUT_END]), max_size=3
            ).map(tuple),
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
            k, v = chance.choice((*"abc", None)), chance.randrange(8)
            row = {"at": _text(round(at_s, 1)), "k": k, "v": v}
            rows += [row] * chance.choice((1, 1, 2))
    else:
        rows = [{"at": _text(3600.0 * number), "k": END, "v": 9}]
    path = directory / f"{number}.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (1e9 + number, 1e9 + number))  # Spark's order of reading


def _text(at_s: float) -> str:
    minutes, seconds = divmod(at_s, 60)
    return f"2026-01-01T{int(minutes // 60):02}:{int(minutes % 60):02}:{seconds:04.1f}Z"


def held(directory: Path) -> Iterator[str]:
    """Yield the rows of a sink's files."""
    lines = (line for path in directory.rglob("*.json") for line in path.open())
    parquet = (
        row for path in directory.rglob("*.parquet") for row in pq.read_table(path).to_pylist()
    )
    for row in chain(map(json.loads, lines), parquet):
        if not _is_end(row):
            yield _key(row)


def _key(row: dict[str, object]) -> str:
    return json.dumps({k: v for k, v in row.items() if v is not None}, sort_keys=True)


def _is_end(row: dict[str, Any]) -> bool:
    return row.get("k") == END or (row.get("at") or 0) > END_MS


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
        Counter(_key(row) for one in output.collect() if not _is_end(row := one.asDict()))
        for output in program.outputs(frames)
    ]


def check(spark: SparkSession, program: Program) -> int:
    """Return how many epochs of the first job left rows to the next one."""
    with TemporaryDirectory() as directory:
        try:
            streamed = run_as_stream(program, Path(directory))
        except ConfigurationError:
            with pytest.raises(Py4JJavaError):  # else the fault is not Spark's own
                run_as_batch(spark, program, Path(directory))
            reject()
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


ODD_ROWS = Program(
    (("windows", ("odd names", "odd texts"), False), ("join", ("odd texts", "odd names"), False))
)
"""The conformance suite's odd names and texts."""
HELD_BACK = Program((("windows", (), False), ("raw", (WITHOUT_END,), False)), frozenset())
"""The filter of the second sink takes the last rows from below the watermark of its branch."""
LOOKED_UP = Program(
    tuple(
        ("raw", (step,), False)
        for step in ("its greatest", "its least", "with rows", "in the table", "not in the table")
    )
)
"""Subqueries of several sinks over one table, in one shared stream."""


@pytest.mark.parametrize(
    "program",
    [ISSUE, NOT_SHARED, HELD_BACK, ODD_ROWS, LOOKED_UP],
    ids=["shared", "not shared", "held back", "odd", "looked up"],
)
def test_sinks_of_one_stream_hold_what_a_batch_gives(spark: SparkSession, program: Program) -> None:
    check(spark, program)


@pytest.mark.parametrize("first", ["raw", "windows"])
def test_a_common_table_expression_keeps_the_watermark_of_the_sink_with_state(
    spark: SparkSession, tmp_path: Path, first: str
) -> None:
    """One DataFrame of SQL beneath a sink with state and one without, which has no watermark."""
    chance = random.Random(0)
    for number in range(SLICES + 1):
        write_slice(tmp_path / "a", number, chance)
    job = sm.Job("shared", sm.CheckpointConfig(storage=str(tmp_path / "store")))
    of = {"a": job.source(_files(tmp_path / "a"), "a")}
    common = _sql(of, "WITH c AS (SELECT * FROM {a}) SELECT * FROM c")
    outputs = {"raw": common.filter("n > 4").select("k", "n"), "windows": _windows(common)}
    for name in (first, *({*outputs} - {first})):
        sink = sm.FileSink(str(tmp_path / name), format="json")
        job.sink(outputs[name].drop("at"), sink, name)
    job.run()
    events = _events({"a": spark.read.schema(SCHEMA).json(str(tmp_path / "a"))}, "a")
    wanted = _windows(events).drop("at").filter(f"k IS DISTINCT FROM '{END}'").collect()
    assert Counter(held(tmp_path / "windows")) == Counter(_key(row.asDict()) for row in wanted)


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


# --- one query in another output mode


IN_MODES: dict[str, tuple[str, str]] = {
    "longest": ("complete", "SELECT k, sum(n) AS n FROM {a} GROUP BY k ORDER BY n DESC, k LIMIT 2"),
    "sorted": (
        "complete",
        "WITH w AS (SELECT k, n FROM {a} WHERE n > 1) SELECT k, count(*) AS n FROM w GROUP BY k "
        "ORDER BY k",
    ),
    "rollup": ("complete", "SELECT k, n, count(*) AS m FROM {a} GROUP BY ROLLUP (k, n)"),
    "no key": ("complete", "SELECT max(n) AS n, count(*) AS m FROM {a}"),
    "of a union": (
        "complete",
        "SELECT k, count(*) AS `a.b` FROM (SELECT k FROM {a} UNION ALL SELECT k FROM {b}) "
        "GROUP BY k HAVING count(*) > 3 ORDER BY 2 DESC, 1 LIMIT 3",
    ),
    "of a lateral view": (
        "complete",
        "SELECT k, sum(e) AS n FROM {a} LATERAL VIEW explode(array(n, n + 1)) AS e GROUP BY k",
    ),
    "counts": ("update", "SELECT k, sum(n) AS `x``y` FROM {a} GROUP BY k"),
    "counts of subtracted": (
        "update",
        "SELECT k, count(*) AS n FROM {a} "
        "WHERE k NOT IN (SELECT k FROM VALUES ('b') AS t(k)) GROUP BY k",
    ),
    "windows": ("update", "SELECT window.start AS at, k, sum(n) AS n FROM {a} "
        "GROUP BY window(at, '3 seconds'), k"),
}  # fmt: skip


@dataclass(frozen=True)
class Query:
    """One query of `IN_MODES`, with an end and a new start after the slices in `ends`."""

    name: str
    ends: frozenset[int] = frozenset({0})
    seed: int = 0

    def run(self, spark: SparkSession, root: Path, shown: dict[str, str]) -> None:
        """Run it over the slices that are there; `shown` is what its reader sees, by key."""
        mode, text = IN_MODES[self.name]

        def show(frame: DataFrame, epoch: int) -> None:
            if mode == "complete":
                shown.clear()
            shown.update(_shown(frame, mode, text))

        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        of = {name: reader.json(str(root / name)) for name in "ab"}
        query = (
            sm.write_stream(_sql(of, text))
            .outputMode(mode)
            .option("checkpointLocation", str(root / "ck"))
            .trigger(availableNow=True)
            .foreachBatch(show)
            .start()
        )
        query.awaitTermination()


def _shown(frame: DataFrame, mode: str, text: str) -> dict[str, str]:
    """Return what a reader sees: in the update mode the rows by the key of the aggregation, in the
    complete mode by their number, in the order of the query or, if it has none, of their texts."""
    rows = [row.asDict() for row in frame.collect()]
    if mode == "complete":
        texts = map(str, rows) if "ORDER BY" in text else sorted(map(str, rows))
        return {str(number): row for number, row in enumerate(texts)}
    return {
        str([cells[c] for c in frame.columns if c in ("at", "k")]): str(cells) for cells in rows
    }


def check_query(spark: SparkSession, query: Query) -> None:
    mode, text = IN_MODES[query.name]
    chance = random.Random(query.seed)
    shown: dict[str, str] = {}
    with TemporaryDirectory() as directory:
        root = Path(directory)
        for number in range(SLICES):
            for name in "ab":
                write_slice(root / name, number, chance)
            if number == SLICES - 1 or number in query.ends:
                query.run(spark, root, shown)
        of = {name: spark.read.schema(SCHEMA).json(str(root / name)) for name in "ab"}
        wanted = _shown(_sql(of, text), mode, text)
    assert shown == wanted, query


queries = st.builds(
    Query,
    st.sampled_from(list(IN_MODES)),
    st.frozensets(st.integers(0, SLICES - 2)),
    st.integers(0, 1000),
)


@settings(max_examples=2, derandomize=True, **QUIET)
@example(Query("longest"))
@given(query=queries)
def test_random_queries_show_what_a_batch_gives(spark: SparkSession, query: Query) -> None:
    check_query(spark, query)


DRAWS = int(os.environ.get("ORACLE_DRAWS", "200"))


@pytest.mark.chaos
@pytest.mark.parametrize("node", NODES)
def test_each_node_alone(spark: SparkSession, node: str) -> None:
    check(spark, Program(((node, (), False),)))


@pytest.mark.chaos
@pytest.mark.timeout(4 * 3600)
@settings(max_examples=DRAWS // 4 + 1, **QUIET)
@given(query=queries)
def test_hundreds_of_queries(spark: SparkSession, query: Query) -> None:
    check_query(spark, query)


@pytest.mark.chaos
@pytest.mark.timeout(4 * 3600)
@settings(max_examples=DRAWS, **QUIET)
@given(program=programs)
def test_hundreds_of_programs(spark: SparkSession, program: Program) -> None:
    check(spark, program)
